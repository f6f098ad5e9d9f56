//! Walks every setting: changing one changes what a command is going to do, or the file is refused.
//!
//! The sections, names and defaults are those of `docs/settings.md`, which is generated from the structs
//! that the file is read into; the names are compared with those that the parser knows. A setting or a
//! section without a row here is a failure.

mod alone;
mod destinations;
mod gateway;
mod page;
mod reconcile;
mod refused;
mod tenants;
mod top;

use clap::Parser as _;

use super::File;
use crate::command::Arguments;
use page::Page;

/// One section in one set-up. A section may have several, which are walked together.
struct Section {
    /// Its heading in the page.
    title: &'static str,
    /// The lines before it, a store at least.
    before: &'static str,
    /// The lines that begin it.
    header: &'static str,
    /// The settings that it needs.
    needs: &'static str,
    /// The commands that follow it.
    followed_by: &'static [Command],
    /// Another value for each setting. A value after `!` is refused: so is seen what no command may show.
    settings: &'static [Setting],
    /// More of them, which several sections share.
    more: &'static [Setting],
    /// The lines after it.
    after: &'static str,
}

type Command = &'static [&'static str];
type Setting = (&'static str, &'static str);

const CHECK: Command = &["check"];
const GATEWAY: Command = &["gateway"];
const WORKER: Command = &["worker"];
const LIST: Command = &["keys", "list"];
const MESSAGES: Command = &["outbox", "list"];
const FINDINGS: Command = &["reconcile", "findings"];
const RECONCILE: Command = &["reconcile", "run"];
const DEMO: Command = &["demo"];
const DOCTOR: Command = &["doctor"];

const STORE: &str = "store = 'sqlite:a.db'\n";
const UPSTREAM: &str = "[gateway]\nupstreams = ['http://127.0.0.1:9']\n";
/// A whole file for a gateway, for sections that follow.
const WHOLE: &str = "store = 'sqlite:a.db'\n[gateway]\nupstreams = ['http://127.0.0.1:9']\n";

/// Left out of a section that does not say otherwise.
const USUAL: Section = Section {
    title: "",
    before: WHOLE,
    header: "",
    needs: "",
    followed_by: &[],
    settings: &[],
    more: &[],
    after: "",
};

fn sections() -> impl Iterator<Item = &'static Section> {
    let all = [top::SECTIONS, gateway::SECTIONS, tenants::SECTIONS, destinations::SECTIONS];
    all.into_iter().flatten().chain(reconcile::SECTIONS)
}

/// Returns the plan of a command with this file, as text. `FOLDER` in it is a folder with a certificate.
fn planned(command: &[&str], text: &str) -> Result<String, String> {
    let folder = tempfile::tempdir().unwrap();
    if text.contains("FOLDER") {
        let key = rcgen::KeyPair::generate().unwrap();
        let chain = rcgen::CertificateParams::default().self_signed(&key).unwrap();
        std::fs::write(folder.path().join("chain.pem"), chain.pem()).unwrap();
        std::fs::write(folder.path().join("key.pem"), key.serialize_pem()).unwrap();
    }
    let text = &text.replace("FOLDER", folder.path().to_str().unwrap());
    let path = folder.path().join("firstwrite.toml");
    std::fs::write(&path, text).unwrap();
    let config = ["--config", path.to_str().unwrap()];
    let mut typed = [&["firstwrite"], command, &config[..]].concat();
    // What only the file's own words about callers are about says so itself.
    if (command == GATEWAY || (command == CHECK && text.contains("[gateway")))
        && !text.contains("[gateway.tenants")
        && !text.contains("\ntenants = { sources")
    {
        typed.extend(["--tenants", "single"]);
    }
    let folder = folder.path().to_str().unwrap();
    let plan = Arguments::try_parse_from(typed).unwrap().plan();
    let plan = plan.map_err(|error| error.to_string().replace(folder, ""))?;
    // The limits are behind a trait; they are shown as they were read. Refusing them is up to the plan.
    let gateway = File::parse(text).unwrap().gateway;
    let limits = (gateway.limits().ok(), gateway.unverified_new_keys().ok());
    Ok(format!("{plan:?} {limits:?}").replace(folder, ""))
}

impl Section {
    /// The file with one of its settings changed, or as it is needed.
    fn text(&self, changed: Option<(&str, &str)>) -> String {
        let (name, value) = changed.unwrap_or_default();
        let mut lines: Vec<String> =
            self.needs.lines().filter(|line| !sets(line, name)).map(str::to_owned).collect();
        if changed.is_some() {
            lines.push(format!("{name} = {}", value.trim_start_matches('!')));
        }
        let Self { before, header, after, .. } = self;
        format!("{before}{header}\n{}\n{after}", lines.join("\n"))
    }

    fn walked(&self) -> impl Iterator<Item = &'static Setting> + use<> {
        self.settings.iter().chain(self.more)
    }

    /// The names that the parser knows in this section, by what it says of one that it does not know.
    fn names(&self) -> Vec<String> {
        let text = self.text(Some(("no_such_setting", "1")));
        let said = File::parse(&text).unwrap_err().message;
        // Where a text may stand instead of a section, it names none.
        if said.contains("untagged enum MadeSection") {
            return Vec::new();
        }
        let (_, known) = said.split_once("expected").unwrap_or_else(|| panic!("{said}"));
        known.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    }
}

/// Tells whether a line gives a value to the setting of this name.
fn sets(line: &str, name: &str) -> bool {
    line.strip_prefix(name).is_some_and(|rest| rest.starts_with(" ="))
}

#[test]
fn every_setting_changes_something_or_is_refused() {
    let mut wrong = Vec::new();
    for section in sections() {
        for command in section.followed_by {
            let usual = planned(command, &section.text(None));
            let usual = usual.unwrap_or_else(|error| panic!("{}: {error}", section.title));
            for (name, value) in section.walked() {
                let place = format!("{} {name}, {command:?}", section.title);
                let is_refused = value.starts_with('!');
                match planned(command, &section.text(Some((name, value)))) {
                    Ok(_) if is_refused => wrong.push(format!("{place}: is not refused")),
                    Ok(changed) if changed == usual => wrong.push(format!("{place}: does nothing")),
                    Ok(_) => {}
                    Err(_) if is_refused => {}
                    Err(error) => wrong.push(format!("{place}: {error}")),
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// A file that `check` says to hold starts, and one that it refuses does not.
#[test]
fn check_refuses_what_a_start_refuses_and_nothing_else() {
    let mut wrong = Vec::new();
    for section in sections() {
        let texts = section.walked().map(|changed| section.text(Some(*changed)));
        for text in texts.chain([section.text(None)]) {
            let checked = planned(CHECK, &text);
            let starts = section.followed_by.iter().map(|command| planned(command, &text));
            let refusal = starts.into_iter().find_map(Result::err);
            if checked.is_ok() != refusal.is_none() {
                wrong.push(format!("{text}\ncheck: {checked:?}\nstart: {refusal:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn every_setting_is_walked() {
    let page = Page::read();
    let mut wrong = Vec::new();
    for heading in page.sections() {
        let same: Vec<_> = sections().filter(|section| section.title == heading.title).collect();
        if same.is_empty() {
            wrong.push(format!("{} is not walked", heading.title));
        }
        let walked = |name: &str| {
            same.iter().any(|section| section.walked().any(|(walked, _)| *walked == name))
        };
        for row in heading.rows.iter().filter(|row| !row.is_section) {
            if !walked(&row.name) {
                wrong.push(format!("{}: {} is not walked", heading.title, row.name));
            }
        }
        for (name, _) in same.iter().flat_map(|section| section.walked()) {
            if !heading.has(name) {
                wrong.push(format!("{}: the page has no {name}", heading.title));
            }
        }
        for name in same.first().into_iter().flat_map(|section| section.names()) {
            if !heading.has(&name) && name != "kind" {
                wrong.push(format!("{}: the page does not know {name}", heading.title));
            }
        }
    }
    for section in sections() {
        if !page.sections().iter().any(|heading| heading.title == section.title) {
            wrong.push(format!("the page has no {}", section.title));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// A default that is written down is what holds without the setting.
#[test]
fn every_default_in_the_page_is_the_default() {
    let page = Page::read();
    let (mut wrong, mut count) = (Vec::new(), 0);
    for section in sections() {
        for (name, _) in section.walked() {
            if section.needs.lines().any(|line| sets(line, name)) {
                continue;
            }
            let Some(default) = page.default_of(section.title, name) else { continue };
            for command in section.followed_by {
                let place = format!("{} {name} = {default}, {command:?}", section.title);
                let left_out = planned(command, &section.text(None)).unwrap();
                match planned(command, &section.text(Some((name, default)))) {
                    Ok(given) if given == left_out => count += 1,
                    Ok(given) => wrong.push(format!("{place}:\n{left_out}\n{given}")),
                    Err(error) => wrong.push(format!("{place}: {error}")),
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 60, "{count} defaults were compared");
}
