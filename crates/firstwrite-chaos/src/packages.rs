//! Programs a task needs from the operating system, and where they come from.

use std::path::PathBuf;
use std::process::Command;

use anyhow::bail;

use crate::process;

/// Says where a program is, if it is installed.
type Find = fn() -> Option<PathBuf>;

/// A program, and the Debian packages that bring it.
#[derive(Clone, Copy, Debug)]
pub struct Need {
    /// The name of the program.
    pub program: &'static str,
    /// The packages that bring it.
    pub packages: &'static [&'static str],
    /// Looks in places where only this program lives; `None` means the usual folders.
    pub find: Option<Find>,
}

/// For the database library in C that is built with ours; without recommendations gcc comes without headers.
pub const C_COMPILER: Need = Need { program: "cc", packages: &["gcc", "libc6-dev"], find: None };

/// The Kafka client's library is in C, built with make, and brings a part in C++ along.
pub const CPP_COMPILER: Need = Need { program: "c++", packages: &["g++"], find: None };
/// It builds that library.
pub const MAKE: Need = Need { program: "make", packages: &["make"], find: None };

/// The demo prints curl commands, and the check runs them as printed.
pub const CURL: Need = Need { program: "curl", packages: &["curl"], find: None };

/// Examples in Python talk to `PostgreSQL` through it; Debian's own interpreter is the one that finds it.
pub const PSYCOPG: Need =
    Need { program: "psycopg", packages: &["python3", "python3-psycopg"], find: Some(psycopg) };

/// Shows in which order the client of the callers writes down and sends.
pub const STRACE: Need = Need { program: "strace", packages: &["strace"], find: None };

/// Makes the certificate of a server that speaks TLS.
pub const OPENSSL: Need = Need { program: "openssl", packages: &["openssl"], find: None };

/// Proxy with which the gateway is compared.
pub const NGINX: Need = Need { program: "nginx", packages: &["nginx-light"], find: Some(nginx) };

const PYTHON: &str = "/usr/bin/python3";

impl Need {
    /// True if the program is installed.
    pub fn is_met(&self) -> bool {
        match self.find {
            Some(find) => find().is_some(),
            None => process::find(self.program).is_some(),
        }
    }
}

/// Makes sure that all of `needs` are installed: installs what is missing when that is possible, and
/// otherwise says in one line which packages to install.
pub fn ensure(needs: &[Need]) -> anyhow::Result<()> {
    let missing: Vec<&Need> = needs.iter().filter(|need| !need.is_met()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let packages: Vec<&str> = missing.iter().flat_map(|need| need.packages).copied().collect();
    let programs: Vec<&str> = missing.iter().map(|need| need.program).collect();
    let (programs, wanted) = (programs.join(", "), packages.join(" "));
    if !process::is_root() {
        bail!("missing {programs}: run `sudo apt-get install {wanted}` and start again");
    }
    if process::find("apt-get").is_none() {
        bail!("missing {programs}: install what Debian calls `{wanted}` and start again");
    }
    println!("missing {programs}: installing {wanted}");
    process::run(apt_get().arg("update"))?;
    process::run(apt_get().args(["install", "-y", "--no-install-recommends"]).args(&packages))?;
    match missing.iter().find(|need| !need.is_met()) {
        None => Ok(()),
        Some(need) => bail!("{wanted} is installed, yet there is no {}", need.program),
    }
}

/// Looks in `/usr/sbin` too, since it is not in every user's search path.
fn nginx() -> Option<PathBuf> {
    let usual = PathBuf::from("/usr/sbin/nginx");
    process::find("nginx").or_else(|| usual.exists().then_some(usual))
}

/// A library is there when it can be imported.
fn psycopg() -> Option<PathBuf> {
    let is_there = process::succeeds(Command::new(PYTHON).args(["-c", "import psycopg"]));
    is_there.then(|| PathBuf::from(PYTHON))
}

fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command.args(["-qq", "-o=Dpkg::Use-Pty=0"]).env("DEBIAN_FRONTEND", "noninteractive");
    // At this run level Debian's install scripts do not start the servers they bring: ours run on
    // private ports, and a machine should not gain an open database by running tests.
    command.env("RUNLEVEL", "1");
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_needs_no_installing() {
        let shell = Need { program: "sh", packages: &["dash"], find: None };
        assert!(shell.is_met());
        ensure(&[shell]).unwrap();
        let nowhere = Need { program: "sh", packages: &[], find: Some(|| None) };
        assert!(!nowhere.is_met());
    }
}
