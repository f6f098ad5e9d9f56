//! What is unsafe or troubled about an SQLite file.

use std::fs;
use std::path::Path;

use firstwrite_core::StoreError;

use super::SqliteStore;
use crate::doctor::Finding;

/// Where a lock held by one machine is not seen, or not in time, by another.
const SHARED_SYSTEMS: [&str; 9] =
    ["nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "glusterfs", "fuse.sshfs"];
/// What is gone when the machine restarts.
const FLEETING_SYSTEMS: [&str; 2] = ["tmpfs", "ramfs"];
/// A log that no reader lets go grows without end; ours is cut back to far less than this.
const LOG_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// Looks at the file at `path`, which `store` has open, and at what it lies on.
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
            Finding::trouble("journal-mode", what)
                .means("readers and the writer hold each other up")
                .next("let firstwrite open the file for writing once: it sets the journal itself"),
        );
    }
    findings.extend(lies_on(path).as_deref().and_then(file_system));
    findings.extend(log(path));
    Ok(findings)
}

fn file_system(name: &str) -> Option<Finding> {
    if FLEETING_SYSTEMS.contains(&name) {
        let what = format!("the file lies on {name}, in memory");
        return Some(
            Finding::unsafe_("file-system", what)
                .means("every key is forgotten when the machine restarts")
                .next("move the file to a disk, and point --store there"),
        );
    }
    SHARED_SYSTEMS.contains(&name).then(|| {
        Finding::unsafe_("file-system", format!("the file lies on {name}, which machines share"))
            .means("locks and flushes are not dependable there: two writers may both win")
            .next("move the file to a local disk, or use postgres:// for several machines")
    })
}

fn log(path: &Path) -> Option<Finding> {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let bytes = fs::metadata(&log).ok()?.len();
    (bytes > LOG_BYTES_MAX).then(|| {
        Finding::trouble("log-size", format!("the write-ahead log is {bytes} bytes"))
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
