//! A folder with Debian's newest version of one package and what it needs, to be entered with `chroot`.
//!
//! Packages are unpacked, not installed: no script of theirs runs, and deleting the folder undoes it all.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};
use firstwrite_chaos::packages::Need;
use firstwrite_chaos::process;

pub(super) const NEED: Need = Need { program: "mmdebstrap", packages: &["mmdebstrap"], find: None };

/// Ten times what it takes here; a mirror that hangs must not hang the run.
const SECONDS_MAX: &str = "400";
/// Files in which this machine configures its mirror, in the new form and the old.
const SOURCES: [&str; 2] = ["/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list"];
const MIRROR: &str = "http://deb.debian.org/debian";
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Fills `root` with `package`.
pub(super) fn make(root: &Path, package: &str) -> anyhow::Result<()> {
    ensure!(process::is_root(), "only root can enter a private root of Debian's newest packages");
    let sources = SOURCES.iter().filter_map(|path| std::fs::read_to_string(path).ok());
    let mirror = sources.into_iter().find_map(|text| mirror_in(&text));
    let mirror = mirror.unwrap_or_else(|| MIRROR.to_owned());
    let mut command = Command::new("timeout");
    command.args([SECONDS_MAX, "mmdebstrap", "--quiet", "--mode=root", "--variant=extract"]);
    command.arg("--aptopt=APT::Install-Recommends \"false\"");
    // A mirror may be a frozen copy, whose lists are older than they want to be.
    command.arg("--aptopt=Acquire::Check-Valid-Until \"false\"");
    // The links /bin, /lib and /lib64 are in base-files; without them no program finds its loader.
    command.arg(format!("--include=base-files,{package}")).arg("sid").arg(root);
    command.arg(format!("deb [signed-by={KEYRING}] {mirror} sid main"));
    process::run(&mut command)
}

/// A program in `root`, run as `user` of this machine.
pub(super) fn command(root: &Path, user: &str, program: &Path) -> anyhow::Result<Command> {
    // By number: the root has no list of users.
    let numbers = process::read(Command::new("id").args(["-u", user]))?;
    let groups = process::read(Command::new("id").args(["-g", user]))?;
    let mut command = Command::new("chroot");
    command.arg(format!("--userspec={}:{}", numbers.trim(), groups.trim()));
    command.arg("--groups=").arg(root).arg(program);
    ensure!(root.metadata().context("the root is missing")?.uid() == 0, "the root is not root's");
    Ok(command)
}

fn mirror_in(sources: &str) -> Option<String> {
    sources.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        match words.next()? {
            "URIs:" => words.next(),
            "deb" => words.find(|word| word.starts_with("http")),
            _ => None,
        }
        .map(|word| word.trim_end_matches('/').to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirror_of_this_machine_is_found_in_both_forms() {
        let new = "Types: deb\n# URIs: http://old\nURIs: http://a.example/debian/\nSuites: x\n";
        assert_eq!(mirror_in(new).as_deref(), Some("http://a.example/debian"));
        let old = "# deb http://no\ndeb [signed-by=/k] http://b.example/debian bookworm main\n";
        assert_eq!(mirror_in(old).as_deref(), Some("http://b.example/debian"));
        assert_eq!(mirror_in("deb-src http://c.example x main\n"), None);
    }
}
