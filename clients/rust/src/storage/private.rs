//! Files for their owner alone, whatever the process allows others, and folders that are durable.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

/// Options by which a file is made for its owner alone.
pub(super) fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Makes what was made, renamed or deleted in a folder durable.
pub(super) fn sync_folder(path: &Path) -> io::Result<()> {
    if cfg!(windows) {
        // A folder cannot be opened as a file there; renaming is written through by the file system.
        return Ok(());
    }
    File::open(path)?.sync_all()
}
