//! This repository as cargo sees it: its folders, and how its program is built.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use serde_json::Value;

use crate::process;

/// The repository the task was started in.
#[derive(Debug)]
pub struct Workspace {
    /// Its folder.
    pub root: PathBuf,
    /// Cargo's folder for what it builds.
    pub target: PathBuf,
}

/// Profile with which a program of the workspace is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Build {
    /// The one of the tests.
    Debug,
    /// The optimised one.
    Release,
}

impl Workspace {
    /// Asks cargo.
    pub fn load() -> anyhow::Result<Self> {
        let mut command = process::cargo();
        command.args(["metadata", "--no-deps", "--format-version", "1"]);
        let metadata: Value = serde_json::from_str(&process::read(&mut command)?)
            .context("reading cargo metadata")?;
        Self::from_metadata(&metadata).context("cargo metadata lacks an expected member")
    }

    fn from_metadata(metadata: &Value) -> Option<Self> {
        let root = PathBuf::from(metadata["workspace_root"].as_str()?);
        let target = PathBuf::from(metadata["target_directory"].as_str()?);
        Some(Self { root, target })
    }

    /// Cargo, at the root of the repository.
    pub fn cargo(&self) -> Command {
        let mut command = process::cargo();
        command.current_dir(&self.root);
        command
    }

    /// A path as people say it: from the root, where it lies below the root.
    pub fn spoken(&self, path: &Path) -> String {
        path.strip_prefix(&self.root).unwrap_or(path).display().to_string()
    }
}

impl Build {
    /// The one that a `--release` on the command line asks for.
    pub fn of(is_release: bool) -> Self {
        if is_release { Self::Release } else { Self::Debug }
    }

    /// The words that ask cargo for it.
    pub fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Debug => &[],
            Self::Release => &["--release"],
        }
    }

    /// Builds the `firstwrite` binary; returns where it is.
    pub fn binary(self, workspace: &Workspace) -> anyhow::Result<PathBuf> {
        let command = self.command(workspace);
        println!("$ {}", process::spelled(&command));
        Self::built(command)
    }

    /// The `firstwrite` binary as it was built last; builds it if it is missing. Prints nothing on standard output.
    pub(crate) fn existing_binary(self, workspace: &Workspace) -> anyhow::Result<PathBuf> {
        let folder = match self {
            Self::Debug => "debug",
            Self::Release => "release",
        };
        let binary = workspace.target.join(folder).join("firstwrite");
        if binary.is_file() { Ok(binary) } else { Self::built(self.command(workspace)) }
    }

    fn command(self, workspace: &Workspace) -> Command {
        let mut command = workspace.cargo();
        command.arg("build").args(self.arguments());
        command.args(["--package", "firstwrite-server", "--bin", "firstwrite"]);
        command.arg("--message-format=json-render-diagnostics");
        command
    }

    fn built(mut command: Command) -> anyhow::Result<PathBuf> {
        let messages = process::read(&mut command)?;
        built_program(&messages).context("cargo built no binary called `firstwrite`")
    }
}

fn built_program(messages: &str) -> Option<PathBuf> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|message| message["target"]["name"] == "firstwrite")
        .filter(|message| message["target"]["kind"][0] == "bin")
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_read_and_spoken_of() {
        let metadata = serde_json::json!({
            "workspace_root": "/repo",
            "target_directory": "/repo/target",
        });
        let workspace = Workspace::from_metadata(&metadata).unwrap();
        assert_eq!(workspace.spoken(Path::new("/repo/target/x")), "target/x");
    }

    #[test]
    fn the_binary_is_found_among_the_messages() {
        let messages = r#"{"reason":"compiler-artifact","target":{"name":"firstwrite","kind":["lib"]},"executable":null}
{"reason":"compiler-artifact","target":{"name":"firstwrite","kind":["bin"]},"executable":"/t/debug/firstwrite"}
{"reason":"build-finished","success":true}"#;
        assert_eq!(built_program(messages), Some(PathBuf::from("/t/debug/firstwrite")));
        assert_eq!(built_program(""), None);
    }
}
