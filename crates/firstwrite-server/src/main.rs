//! The binary `firstwrite`: see the library beside it.

use std::process::ExitCode;

fn main() -> ExitCode {
    firstwrite_server::run()
}
