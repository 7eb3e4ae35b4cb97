//! `acp-shim`: the program inside each sandbox and in the depot. All of it is in `longshore::shim`.

use std::process::ExitCode;

fn main() -> ExitCode {
    longshore::shim::main(std::env::args_os().skip(1).collect())
}
