//! Name of the actor in audit entries: the name given on the command line, or the system user.

use std::fs;

use rustix::process::getuid;

/// File that lists the system's users.
const USERS: &str = "/etc/passwd";

/// Returns the actor's name for an audit entry: `given`, or the user that the command runs as. If that user
/// became root with `sudo`, the name includes the original user.
pub(crate) fn name(given: Option<&str>) -> String {
    if let Some(given) = given {
        return given.to_owned();
    }
    let number = getuid().as_raw();
    let users = fs::read_to_string(USERS).unwrap_or_default();
    named(&users, number, std::env::var("SUDO_USER").ok().as_deref())
}

fn named(users: &str, number: u32, on_behalf: Option<&str>) -> String {
    let user = user(users, number).map_or_else(|| format!("uid {number}"), str::to_owned);
    match on_behalf {
        Some(person) if person != user && is_name(person) => format!("{user} (sudo by {person})"),
        Some(_) | None => user,
    }
}

/// The name of a user: the first field of the line whose third is the number.
fn user(users: &str, number: u32) -> Option<&str> {
    let number = number.to_string();
    let mut lines = users.lines().map(|line| line.split(':'));
    lines.find_map(|mut fields| {
        let name = fields.next().filter(|name| is_name(name))?;
        (fields.nth(1)? == number).then_some(name)
    })
}

/// Returns true if the text is a plausible user name. Checked because any process can set `SUDO_USER`.
fn is_name(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOME: &str = "root:x:0:0:root:/root:/bin/sh\nbad line\nada:x:1000:1000::/:/bin/sh\n";

    #[test]
    fn whoever_acts_has_a_name() {
        assert_eq!(named(SOME, 1000, None), "ada");
        assert_eq!(named(SOME, 0, Some("ada")), "root (sudo by ada)");
        assert_eq!(named(SOME, 0, Some("root")), "root");
        assert_eq!(named(SOME, 0, Some("a\u{1b}b")), "root", "only what can be a name");
        assert_eq!(named(SOME, 7, None), "uid 7");
        assert_eq!(named("", 7, None), "uid 7");
        assert_eq!(name(Some("grace")), "grace");
    }
}
