//! Other programs: finding, running, reading and stopping them.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, bail};

/// Folders in which servers are installed; an ordinary user's `PATH` often leaves these out.
const SYSTEM_FOLDERS: [&str; 2] = ["/usr/sbin", "/sbin"];

/// The cargo that started us, so that one toolchain does everything.
///
/// It does not inherit what `cargo run` says of the package that it runs: build scripts of dependencies watch these
/// variables, and a build from here would compile half of the dependencies again after one by hand, and the reverse.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        let is_of_package = name.to_str().is_some_and(|name| {
            name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
        });
        if is_of_package {
            command.env_remove(name);
        }
    }
    command
}

/// Runs a command in view of the person at the terminal; an error if it does not succeed.
pub fn run(command: &mut Command) -> anyhow::Result<()> {
    println!("$ {}", spelled(command));
    let status = command.status().with_context(|| cannot_start(command))?;
    if !status.success() {
        bail!("`{}` failed ({status})", spelled(command));
    }
    Ok(())
}

/// Runs a command and returns what it prints on standard output; an error if it does not succeed.
pub fn read(command: &mut Command) -> anyhow::Result<String> {
    let output =
        command.stderr(Stdio::inherit()).output().with_context(|| cannot_start(command))?;
    if !output.status.success() {
        bail!("`{}` failed ({})", spelled(command), output.status);
    }
    String::from_utf8(output.stdout).with_context(|| format!("reading `{}`", spelled(command)))
}

/// Returns true if a command succeeds; its output is discarded.
pub fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Runs a command and hands over each line of both its outputs, in the order they were written.
pub fn read_lines(
    mut command: Command,
    mut on_line: impl FnMut(&str),
) -> anyhow::Result<ExitStatus> {
    println!("$ {}", spelled(&command));
    let (reader, writer) = std::io::pipe().context("opening a pipe")?;
    command.stdout(writer.try_clone().context("sharing a pipe")?).stderr(writer);
    let mut child = command.spawn().with_context(|| cannot_start(&command))?;
    // The command holds the writing ends; while it lives, the reader would never see the end.
    drop(command);
    let mut reader = BufReader::new(reader);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).context("reading a command's output")? > 0 {
        on_line(String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r']));
        line.clear();
    }
    child.wait().context("waiting for a command to end")
}

/// The full path of a program, if it is installed.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(SYSTEM_FOLDERS.iter().map(PathBuf::from))
        .map(|folder| folder.join(program))
        .find(|candidate| candidate.is_file())
}

/// True if this process runs as root.
pub fn is_root() -> bool {
    // Linux shows a process's folder as owned by the user it runs as.
    std::fs::metadata("/proc/self").is_ok_and(|folder| folder.uid() == 0)
}

/// Sends a signal (`INT`, `TERM`, `KILL`) to one process.
pub fn signal(pid: u32, name: &str) -> bool {
    // The shell has `kill` built in; a small machine may lack the program.
    succeeds(Command::new("sh").args(["-c", "kill -\"$1\" \"$2\"", "sh", name, &pid.to_string()]))
}

/// Sends a signal to several processes in one go. Some may have ended meanwhile: look again who is left.
pub fn signal_all(pids: &[u32], name: &str) {
    let mut command = Command::new("sh");
    command.args(["-c", "signal=$1; shift; kill -\"$signal\" \"$@\"", "sh", name]);
    succeeds(command.args(pids.iter().map(u32::to_string)));
}

/// Returns the time when a process was started, in the kernel's own count; `None` if it is gone.
///
/// Together with the pid this identifies one process for as long as the machine runs, since pids are reused.
pub fn started_at(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    parse_started_at(&stat)
}

fn parse_started_at(stat: &str) -> Option<u64> {
    // The program's name stands in parentheses and may hold anything, blanks included.
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace();
    let state = fields.next()?;
    if state == "Z" {
        // Dead already; only its parent has not looked yet.
        return None;
    }
    // The state is the third field of the line, the start time the twenty-second.
    fields.nth(18)?.parse().ok()
}

/// A command as a person would type it.
pub fn spelled(command: &Command) -> String {
    let program = Path::new(command.get_program())
        .file_name()
        .map_or_else(|| command.get_program().to_string_lossy(), |name| name.to_string_lossy());
    let mut text = program.into_owned();
    for arg in command.get_args() {
        text.push(' ');
        text.push_str(&arg.to_string_lossy());
    }
    text
}

fn cannot_start(command: &Command) -> String {
    format!("cannot start `{}`", spelled(command))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_time_is_read_past_a_name_with_blanks() {
        let stat = "7 (a b) c) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 1 2";
        assert_eq!(parse_started_at(stat), Some(987_654));
        assert_eq!(parse_started_at(&stat.replace(" S ", " Z ")), None);
        assert!(started_at(std::process::id()).is_some());
    }

    #[test]
    fn one_that_is_gone_does_not_save_the_others() {
        let reader = || {
            let mut command = Command::new("sh");
            command.args(["-c", "read x"]).stdin(Stdio::piped()).spawn().unwrap()
        };
        let (mut gone, mut one, mut other) = (reader(), reader(), reader());
        gone.kill().unwrap();
        gone.wait().unwrap();
        signal_all(&[one.id(), gone.id(), other.id()], "KILL");
        assert!(!one.wait().unwrap().success());
        assert!(!other.wait().unwrap().success());
    }

    #[test]
    fn both_outputs_arrive_in_order() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo one; echo two >&2; echo three"]);
        let mut lines = Vec::new();
        let status = read_lines(command, |line| lines.push(line.to_owned())).unwrap();
        assert!(status.success());
        assert_eq!(lines, ["one", "two", "three"]);
    }

    #[test]
    fn a_command_that_fails_is_named() {
        let error = run(Command::new("sh").args(["-c", "exit 3"])).unwrap_err();
        assert!(error.to_string().starts_with("`sh -c exit 3` failed"), "{error}");
    }
}
