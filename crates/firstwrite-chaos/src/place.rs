//! Place of a test server: a folder owned by its user, and a port.

use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use crate::process;
use crate::random::{Random, fresh_seed};

/// Below the range from which the kernel takes ports for outgoing connections. While a server is down, a
/// client's own connection could otherwise be given the server's port, and the server could not come back.
const PORTS: Range<u64> = 20_000..32_000;
/// So many busy ports in a row mean that something else is wrong.
const PORT_TRIES: u32 = 100;

/// Folder, port and user of one server.
#[derive(Clone, Debug)]
pub struct Place {
    /// Its folder, for it alone.
    pub folder: PathBuf,
    /// Its port on loopback.
    pub port: u16,
    /// The user it runs as, if not ours.
    pub user: Option<&'static str>,
    /// The port of the server this one stands in front of.
    pub behind: Option<u16>,
}

impl Place {
    /// An empty folder `name` below `folder`, or below the temporary folder where `user` cannot go that far.
    pub fn make(name: &str, folder: &Path, user: Option<&'static str>) -> anyhow::Result<Self> {
        let user = user.filter(|_| process::is_root());
        let near = folder.join(name);
        // Another user may not be able to enter the repository, for instance below a private home.
        let far = std::env::temp_dir().join(format!("firstwrite-{name}-{}", std::process::id()));
        for folder in [near, far] {
            if folder.exists() {
                delete(&folder);
            }
            std::fs::create_dir_all(&folder)
                .with_context(|| format!("cannot make the folder {}", folder.display()))?;
            let place = Self { folder, port: steady_port()?, user, behind: None };
            let Some(user) = user else { return Ok(place) };
            process::read(Command::new("chown").arg(format!("{user}:{user}")).arg(&place.folder))?;
            if process::succeeds(place.command(Path::new("test")).arg("-w").arg(&place.folder)) {
                return Ok(place);
            }
            delete(&place.folder);
        }
        bail!("the user of {name} can reach neither the repository nor the temporary folder")
    }

    /// A program, run as the user the server runs as.
    pub fn command(&self, program: &Path) -> Command {
        match self.user {
            None => Command::new(program),
            Some(user) => {
                let mut command = Command::new("setpriv");
                command.args([&format!("--reuid={user}"), &format!("--regid={user}")]);
                command.arg("--init-groups").arg(program);
                command
            }
        }
    }

    /// The folder of its data.
    pub fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// The file of its log.
    pub fn log(&self) -> PathBuf {
        self.folder.join("log")
    }

    /// The last line the server wrote, for a message to people.
    pub fn last_words(&self) -> String {
        let log = std::fs::read_to_string(self.log()).unwrap_or_default();
        log.lines().next_back().unwrap_or("nothing").to_owned()
    }
}

/// Deletes a folder; prints its name if it cannot be deleted, since callers do not.
pub fn delete(folder: &Path) {
    if let Err(error) = std::fs::remove_dir_all(folder) {
        eprintln!("leaving {}: {error}", folder.display());
    }
}

/// Returns a port on which no process listens, and which stays free while its server is down.
pub fn steady_port() -> anyhow::Result<u16> {
    let mut random = Random::new(fresh_seed());
    for _ in 0..PORT_TRIES {
        let port = PORTS.start + random.below(PORTS.end - PORTS.start);
        let port = u16::try_from(port).context("a port has sixteen bits")?;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no free port between {} and {}", PORTS.start, PORTS.end)
}

/// Returns a port on which no process listens at the moment.
pub fn free_port() -> anyhow::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port")?;
    Ok(listener.local_addr().context("no free port")?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_foreign_user_is_taken_on_by_setpriv() {
        let mut place = Place { folder: "/x".into(), port: 1, user: None, behind: None };
        assert_eq!(process::spelled(&place.command(Path::new("/bin/initdb"))), "initdb");
        place.user = Some("postgres");
        assert_eq!(
            process::spelled(&place.command(Path::new("/bin/initdb"))),
            "setpriv --reuid=postgres --regid=postgres --init-groups /bin/initdb"
        );
    }

    #[test]
    fn a_steady_port_is_none_the_kernel_would_hand_out() {
        let handed_out = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap();
        let first: u16 = handed_out.split_whitespace().next().unwrap().parse().unwrap();
        assert!(steady_port().unwrap() < first, "outgoing connections begin at {first}");
    }
}
