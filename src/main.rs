//! The `longshore` program. Everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    longshore::cli::dispatch::main()
}
