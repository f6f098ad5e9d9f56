//! Values that may be secret: written out, or `env:NAME`, or `file:PATH`, so that no secret need stand
//! in the settings file.

use std::env;
use std::fmt;
use std::fs;
use std::io::{self, Read as _};
use std::path::Path;

use serde::Deserialize;

/// A value as it stands in the settings file. Never shown.
#[derive(Clone, Deserialize, PartialEq, Eq)]
#[serde(transparent)]
pub(crate) struct Given(String);

/// Tokens, addresses and credentials are short; anything larger is the wrong file.
const FILE_BYTES_MAX: u64 = 64 * 1024;

impl Given {
    /// The value itself. A refusal says what is missing, and never what was found.
    pub(crate) fn read(&self) -> Result<String, String> {
        if let Some(name) = self.0.strip_prefix("env:") {
            return match env::var(name) {
                Ok(value) => Ok(value),
                Err(env::VarError::NotPresent) => {
                    Err(format!("the environment has no {name}; set it, or write file:PATH"))
                }
                Err(env::VarError::NotUnicode(_)) => Err(format!("{name} is not UTF-8 text")),
            };
        }
        match self.0.strip_prefix("file:") {
            Some(path) => read_text(path),
            None => Ok(self.0.clone()),
        }
    }
}

/// A file's text, without the line break that editors leave at its end.
fn read_text(path: &str) -> Result<String, String> {
    let bytes = read_file(path)?;
    let Ok(text) = String::from_utf8(bytes) else {
        return Err(format!("{path} is not UTF-8 text"));
    };
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

/// A file's bytes.
pub(crate) fn read_file(path: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let file =
        open_file(Path::new(path)).map_err(|error| format!("cannot open {path}: {error}"))?;
    file.take(FILE_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| format!("cannot read {path}: {error}"))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("{path} is over {FILE_BYTES_MAX} bytes; is it the right file?"));
    }
    Ok(bytes)
}

/// Opens a file to be read. A pipe or a device would be waited for, perhaps for ever.
pub(crate) fn open_file(path: &Path) -> io::Result<fs::File> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    fs::File::open(path)
}

impl fmt::Debug for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Given(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(text: &str) -> Given {
        Given(text.to_owned())
    }

    #[test]
    fn a_value_is_plain_or_stands_in_the_environment_or_in_a_file() {
        assert_eq!(given("Bearer abc").read().as_deref(), Ok("Bearer abc"));
        let path = env::var("CARGO_MANIFEST_DIR").unwrap();
        assert_eq!(given("env:CARGO_MANIFEST_DIR").read(), Ok(path));
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        fs::write(&file, "secret\r\n").unwrap();
        assert_eq!(given(&format!("file:{}", file.display())).read().as_deref(), Ok("secret"));
    }

    #[test]
    fn what_is_not_there_is_named() {
        let missing = given("env:FIRSTWRITE_NO_SUCH_NAME").read().unwrap_err();
        assert!(missing.contains("FIRSTWRITE_NO_SUCH_NAME"), "{missing}");
        assert!(given("file:/no/such/file").read().unwrap_err().contains("/no/such/file"));
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("large");
        fs::write(&file, vec![b'x'; 64 * 1024 + 1]).unwrap();
        let large = given(&format!("file:{}", file.display())).read().unwrap_err();
        assert!(large.contains("is it the right file") && !large.contains("xxx"), "{large}");
    }

    #[cfg(unix)]
    #[test]
    fn what_is_no_file_is_refused_and_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        for path in [&*pipe, folder.path(), Path::new("/dev/null")] {
            let (told, hears) = std::sync::mpsc::channel();
            let asked = path.to_owned();
            std::thread::spawn(move || {
                let secret = given(&format!("file:{}", asked.display())).read().unwrap_err();
                let config = super::super::File::read(&asked).unwrap_err().to_string();
                told.send((secret, config)).unwrap();
            });
            let heard = hears.recv_timeout(std::time::Duration::from_secs(5));
            let (secret, config) = heard.expect("a pipe is not waited for");
            for refused in [secret, config] {
                assert!(refused.contains("it is not a regular file"), "{refused}");
                assert!(refused.contains(path.to_str().unwrap()) && !refused.contains('\n'));
            }
        }
    }

    #[test]
    fn a_value_is_never_shown() {
        assert_eq!(format!("{:?}", given("secret")), "Given(…)");
    }
}
