//! `longshore`: everything is in the library; here the command line is parsed and the exit code given.

use std::process::ExitCode;

fn main() -> ExitCode {
    longshore::cli::main()
}
