//! `cargo xtask fuzz`: feeds malformed bytes to everything that parses input from others.

use firstwrite_chaos::args::Args;
use firstwrite_chaos::process;
use firstwrite_chaos::workspace::Workspace;

pub(crate) const HELP: &str = "\
Drives every target of fuzz/ without coverage, on stable, from the examples in fuzz/corpus: keys, heads, tokens, key
sets, fingerprints, stored forms, envelopes, addresses, settings, exports, answers. The same targets run in every
`test`, in a short form, and in `test --full` in this one. With nightly and cargo-fuzz, `cargo +nightly fuzz run
TARGET` drives one with coverage.

  --executions N   for each target";

/// For each of 16 targets: more than three million in all, in a few minutes.
pub(crate) const EXECUTIONS_FULL: &str = "200000";

pub(crate) fn run(workspace: &Workspace, mut args: Args) -> anyhow::Result<()> {
    let executions: Option<u64> = args.value("--executions")?;
    args.finish()?;
    let executions =
        executions.map_or_else(|| EXECUTIONS_FULL.to_owned(), |count| count.to_string());
    for target in [&["--test", "fuzz"][..], &["--bins", "--", "fuzzing"]] {
        let mut command = workspace.cargo();
        command.args(["test", "--package", "firstwrite-server", "--all-features"]).args(target);
        process::run(command.env("FIRSTWRITE_TEST_FUZZ", &executions))?;
    }
    Ok(())
}
