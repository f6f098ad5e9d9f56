//! Checks an SQLite file for unsafe settings and problems.

use std::fs;
use std::path::Path;

use firstwrite_core::StoreError;
use firstwrite_core::host_clock::{ClockJump, SeenTime, is_step};

use super::SqliteStore;
use super::connect::beside;
use super::store_clock;
use super::writer_lock::Word;
use crate::doctor::Finding;

/// Network file systems, on which one machine does not see another's lock, or not in time.
const SHARED_SYSTEMS: [&str; 9] =
    ["nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "glusterfs", "fuse.sshfs"];
/// File systems in memory, whose contents are gone when the machine restarts.
const FLEETING_SYSTEMS: [&str; 2] = ["tmpfs", "ramfs"];
/// A log that no reader lets go grows without end; ours is cut back to far less than this.
const LOG_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// Examines the file at `path`, which `store` has open, and its file system.
pub async fn examine(store: &SqliteStore, path: &Path) -> Result<Vec<Finding>, StoreError> {
    let journal: String = store
        .read(|connection| connection.pragma_query_value(None, "journal_mode", |row| row.get(0)))
        .await?;
    let mut findings = vec![
        Finding::note("synchronous", "every commit is flushed (synchronous = full)")
            .means("an acknowledged key survives a crash of the process and of the machine")
            .next("nothing; the writer refuses to start without it"),
    ];
    if !journal.eq_ignore_ascii_case("wal") {
        let what = format!("the journal is `{journal}`, not `wal`");
        findings.push(
            Finding::warning("journal-mode", what)
                .means("readers and the writer hold each other up")
                .next("let firstwrite open the file for writing once: it sets the journal itself"),
        );
    }
    findings.extend(loss(path));
    let losses = store.history_losses().await?.into_iter().filter(|loss| loss.cleared.is_none());
    findings.extend(losses.map(|loss| Finding::history_lost(loss.detail)));
    findings.extend(store.clock_jumps().await?.into_iter().map(jump));
    findings.extend(store.read(store_clock::seen).await?.and_then(difference));
    findings.extend(lies_on(path).as_deref().and_then(file_system));
    findings.extend(log(path));
    findings.extend(modes(path));
    Ok(findings)
}

/// Files that others than their owner may read or write.
#[cfg(unix)]
fn modes(path: &Path) -> Option<Finding> {
    use std::os::unix::fs::PermissionsExt as _;

    let mut open = Vec::new();
    for suffix in ["", "-wal", "-shm", "-lock"] {
        let file = beside(path, suffix);
        let mode = fs::metadata(&file).map_or(0, |metadata| metadata.permissions().mode() & 0o777);
        if mode & 0o077 != 0 {
            open.push(format!("{} ({mode:03o})", file.display()));
        }
    }
    (!open.is_empty()).then(|| {
        Finding::warning("file-mode", format!("others than the owner may use {}", open.join(", ")))
            .means("whoever has an account on this machine can read the answers, or write some")
            .next("`chmod 600` on each of them")
    })
}

#[cfg(not(unix))]
fn modes(_path: &Path) -> Option<Finding> {
    None
}

/// Reports the loss that a running process noted in the lock file, if it found its file deleted or
/// replaced.
fn loss(path: &Path) -> Option<Finding> {
    let what = Word::at(&beside(path, "-lock")).loss?;
    Some(
        Finding::unsafe_("file-lost", format!("{what} while a process had it open"))
            .means("what that process acknowledges since is lost when it ends; it refuses unknown keys")
            .next(
                "stop the service, put the file back or restore a backup, start it again, then clear \
                 the loss that it writes down",
            ),
    )
}

fn jump(jump: ClockJump) -> Finding {
    let hours = jump.uncounted.as_secs_f64() / 3600.0;
    let what = format!("the clock went {hours:.1} h ahead between two openings of the file");
    Finding::warning("clock-jumped", what)
        .means("the machine was off, or its clock is wrong: earlier outcomes are kept that much longer")
        .next(
            "if the clock is right, stop the service and run `firstwrite doctor --confirm-clock \
             --reason …`; if not, set it right, and nothing else is to be done",
        )
}

fn difference(seen: SeenTime) -> Option<Finding> {
    let ahead = seen.wall_ahead();
    let word = if ahead > 0 { "ahead of" } else { "behind" };
    let what = format!("the host's clock was {} s {word} the store's time", ahead.abs() / 1000);
    is_step(ahead).then(|| {
        Finding::warning("clock-stepped", what)
            .means("leases and retention hold, but times shown to people and clients are wrong by this")
            .next("see that the clock is kept by a time service; a restart takes up what it is ahead")
    })
}

fn file_system(name: &str) -> Option<Finding> {
    if FLEETING_SYSTEMS.contains(&name) {
        let what = format!("the file lies on {name}, in memory");
        return Some(
            Finding::unsafe_("file-system", what)
                .means("every key is forgotten when the machine restarts")
                .next("stop the service, move the file and what is beside it to a disk, and point --store there"),
        );
    }
    SHARED_SYSTEMS.contains(&name).then(|| {
        Finding::unsafe_("file-system", format!("the file lies on {name}, which machines share"))
            .means("locks and flushes are not dependable there: two writers may both win")
            .next(
                "stop the service and move the file and what is beside it to a local disk, or use \
                 postgres:// for several machines",
            )
    })
}

fn log(path: &Path) -> Option<Finding> {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let bytes = fs::metadata(&log).ok()?.len();
    (bytes > LOG_BYTES_MAX).then(|| {
        Finding::warning("log-size", format!("the write-ahead log is {bytes} bytes"))
            .means("a reader has kept a snapshot open, and look-ups become slow")
            .next("end long-running readers of the file; the log is then cut back by itself")
    })
}

/// The kind of file system `path` lies on, where the system tells.
fn lies_on(path: &Path) -> Option<String> {
    let path = fs::canonicalize(path).ok()?;
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    kind_of(&mounts, &path).map(str::to_owned)
}

/// The kind of the innermost mount that holds `path`. The last of two on one place hides the first.
fn kind_of<'m>(mounts: &'m str, path: &Path) -> Option<&'m str> {
    let mut innermost = None;
    for line in mounts.lines() {
        let mut fields = line.split(' ');
        let (Some(_), Some(place), Some(kind)) = (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let place = place.replace("\\040", " ");
        let depth = Path::new(&place).components().count();
        let is_inner = innermost.is_none_or(|(_, deepest)| depth >= deepest);
        if path.starts_with(&place) && is_inner {
            innermost = Some((kind, depth));
        }
    }
    innermost.map(|(kind, _)| kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "/dev/sda1 / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\n\
                          host:/x /mnt/shared nfs4 rw 0 0\n/dev/sdb1 /mnt/my\\040disk xfs rw 0 0\n\
                          tmpfs /data tmpfs rw 0 0\n/dev/sdc1 /data ext4 rw 0 0\n";

    #[test]
    fn a_file_lies_on_the_innermost_mount() {
        for (path, kind) in [
            ("/var/lib/a.db", "ext4"),
            ("/tmp/a.db", "tmpfs"),
            ("/tmpfile.db", "ext4"),
            ("/mnt/shared/deep/a.db", "nfs4"),
            ("/mnt/my disk/a.db", "xfs"),
            ("/data/a.db", "ext4"),
        ] {
            assert_eq!(kind_of(MOUNTS, Path::new(path)), Some(kind), "{path}");
        }
        assert_eq!(kind_of("", Path::new("/a.db")), None);
    }

    #[test]
    fn memory_and_shared_systems_are_unsafe_and_disks_are_not() {
        assert_eq!(file_system("tmpfs").map(|found| found.code), Some("file-system"));
        assert_eq!(file_system("nfs4").map(|found| found.code), Some("file-system"));
        assert_eq!(file_system("ext4"), None);
    }
}
