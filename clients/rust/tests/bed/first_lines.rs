//! The first lines of the README do what they say, behind a proxy that loses answers.

use std::process::{Command, Stdio};

use crate::bed::bed;

#[path = "../../examples/first_payment.rs"]
#[expect(dead_code, reason = "the example is a program of its own, whose `main` is not run here")]
mod example;

/// The environment variable in which the process finds the address.
const URL: &str = "FIRSTWRITE_CLIENT_FIRST_LINES";

/// Runs the example; without an address it is a test that has nothing to do.
#[tokio::test]
async fn act() {
    let Ok(url) = std::env::var(URL) else { return };
    example::pay(&url).await.unwrap();
}

#[test]
fn the_first_lines_of_the_readme_pay_once() {
    let source = include_str!("../../examples/first_payment.rs");
    let lines = source.split_once("\n\n").unwrap().1.replace("pub(crate) ", "");
    let readme = include_str!("../../README.md");
    assert!(readme.contains(lines.trim()), "the README shows the example as it is");

    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    // The first process loses its answer and dies while it waits; the second goes on.
    for url in [format!("{}/payments", bed().refused), bed().payments()] {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "first_lines::act", "--nocapture"]).env(URL, &url);
        command.current_dir(folder.path()).stdin(Stdio::null());
        if url == bed().payments() {
            let output = command.output().unwrap();
            let told = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(output.status.success() && told.contains("paid: \"pay_"), "{told}");
        }
    }
    let effects = runtime.block_on(bed().effects("cart_42"));
    assert_eq!(effects.into_values().collect::<Vec<_>>(), [1]);
}
