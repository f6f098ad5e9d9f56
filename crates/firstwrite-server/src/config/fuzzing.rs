//! The config file and the addresses in it, for [`crate::fuzzing`].

use super::{File, StoreUrl};
use crate::command::GatewayFlags;
use crate::gateway;

/// Parts of settings that name a file or a variable of the environment, or start a thread: nothing of that is
/// touched here.
const NOT_HERE: [&str; 6] = ["env:", "file", "tls", "root_certificates", "table", "otlp"];

/// A config file, and the gateway as it is planned from it. A refusal of the file is one line: an operator reads it
/// behind the name of the file.
pub(crate) fn config(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let parsed = File::parse(text);
    if let Ok(file) = &parsed
        && !NOT_HERE.iter().any(|part| text.contains(part))
    {
        let upstream = vec!["http://127.0.0.1:9".to_owned()];
        let tenants = (!file.gateway.has_tenants()).then(|| "single".to_owned());
        let flags = GatewayFlags { upstream, tenants, ..GatewayFlags::default() };
        if let Err(error) = gateway::Settings::resolve(flags, file, None) {
            assert!(!error.to_string().trim().is_empty(), "refused without a word");
        }
    }
    if let Err(mistake) = parsed {
        let told = &mistake.message;
        assert!(!told.trim().is_empty(), "refused without a word");
        assert!(!told.contains('\n'), "a refusal of several lines: {told:?}");
        let lines = 1 + text.bytes().filter(|byte| *byte == b'\n').count();
        assert!(mistake.line(text).is_none_or(|line| line <= lines), "a line that is not there");
    }
}

/// The address of a store: it reads as the same store when it is passed on, and the form that is shown has no
/// password in it.
pub(crate) fn store_url(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(url) = text.parse::<StoreUrl>() {
        assert!(url.address().parse().is_ok_and(|again: StoreUrl| again == url), "passed on");
    }
    let password = text.replace(['?', '#', ' '], "").replace(char::is_control, "");
    for scheme in ["postgres", "mysql", "rediss"] {
        let with = |password: &str| format!("{scheme}://user:{password}@host/name").parse();
        let urls: [Result<StoreUrl, _>; 2] = [with(&password), with("other")];
        if let [Ok(one), Ok(other)] = urls {
            assert_eq!(one.to_string(), other.to_string(), "the password is shown");
        }
    }
}
