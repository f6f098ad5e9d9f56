//! All processes of one `PostgreSQL` server, found by the folder they work in.
//!
//! Neither parent nor process group identifies them: backends make groups of their own, and they lose their parent
//! when the first process is killed.

use std::path::Path;

/// The pids of the `postgres` processes whose current folder is `data`.
///
/// The program's name is asked for as well, so that a person's shell in that folder is left alone.
pub(super) fn of_server(data: &Path) -> Vec<u32> {
    let Ok(data) = data.canonicalize() else { return Vec::new() };
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| works_in(*pid, "postgres", &data))
        .collect()
}

/// By what the kernel tells of a dying process too: as long as it holds memory, it has a name and a folder,
/// while the path of its program is gone before that.
fn works_in(pid: u32, program: &str, folder: &Path) -> bool {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let own = std::fs::read_link(format!("/proc/{pid}/cwd"));
    name.trim_end() == program && own.is_ok_and(|own| own == folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_folder_and_its_program() {
        let (own, folder) = (std::process::id(), std::env::current_dir().unwrap());
        let program = std::fs::read_to_string("/proc/self/comm").unwrap();
        let program = program.trim_end();
        assert!(works_in(own, program, &folder));
        assert!(!works_in(own, "postgres", &folder), "we are no server");
        assert!(!works_in(own, program, Path::new("/")));
        assert_eq!(of_server(&folder), [0_u32; 0]);
    }
}
