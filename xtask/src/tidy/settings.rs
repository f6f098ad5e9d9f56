//! `cargo xtask settings`: the reference of all settings, from the structs that a settings file is read into.
//!
//! Names, types and meanings come from the source. A default that is written as a value is compared with what the
//! program does without the setting, by the tests of `firstwrite-server`, which read the page back.

mod structs;

use std::fmt::Write as _;

use anyhow::Context as _;
use firstwrite_chaos::args::Args;
use firstwrite_chaos::workspace::Workspace;

use super::Finding;
use super::files::Tree;
use structs::{Field, Source, Struct};

pub(crate) const HELP: &str = "\
Writes docs/settings.md from the structs that `firstwrite` reads its settings file into: name, type, default and
meaning of every setting. `cargo xtask tidy` says when the page is not what would be written.";

const PAGE: &str = "docs/settings.md";

/// The folders whose structs are sections, and a file with words that they use.
const CONFIG: &str = "crates/firstwrite-server/src/config";
const TENANTS: &str = "crates/firstwrite-gateway/src/tenants/settings";
const WORDS: &str = "crates/firstwrite-server/src/telemetry.rs";
/// Tests.
const APART: [&str; 2] = ["config/walk", "tests.rs"];

const HEAD: &str = "\
# Settings

Every setting of the file that `--config` names. A flag wins over the environment, and both over the file. An unknown
name is refused with its line, and so is a value that makes no sense: `firstwrite check --config FILE` says so before
anything is started.

This page is written by `cargo xtask settings` from the structs that the file is read into. Tests change each setting
and see the plan of a command change, or the file refused; they compare each default here that is written as a value.

- *length of time*: a number and a unit, such as `\"1500ms\"`, `\"30s\"` or `\"24h\"`
- *secret*: a text, or `\"env:NAME\"`, or `\"file:PATH\"`, so that no secret need stand in the file
- *place*: in JSON, a pointer such as `\"/data/id\"`
- *section*: settings of its own, below
";

/// A section: its heading, the file and the struct that it is read into, and a line about it.
struct Section {
    title: &'static str,
    file: &'static str,
    name: &'static str,
    about: &'static str,
}

const fn section(
    title: &'static str,
    file: &'static str,
    name: &'static str,
    about: &'static str,
) -> Section {
    Section { title, file, name, about }
}

const SECTIONS: &[Section] = &[
    section("Top of the file", "config.rs", "File", ""),
    section(
        "`[gateway]`",
        "config/gateway.rs",
        "GatewaySection",
        "Explained in [gateway](gateway.md).",
    ),
    section("`[gateway.cors]`", "config/gateway.rs", "CorsSection", ""),
    section("`[gateway.health]`", "config/gateway.rs", "HealthSection", ""),
    section("`[gateway.tls]`", "config/gateway.rs", "TlsSection", ""),
    section(
        "`[gateway.limits]`",
        "config/gateway.rs",
        "LimitsSection",
        "Explained under [limits](gateway.md#limits). `[gateway.limits.tenants.NAME]` has the same settings but \
         `count_every`.",
    ),
    section(
        "`[[gateway.operations]]`",
        "config/gateway/operation.rs",
        "OperationSection",
        "`[gateway.default]` has the same settings but `operation`, and holds for every POST that is not named; a \
         named operation begins with them.",
    ),
    section(
        "`[gateway.operations.fingerprint]`",
        "config/gateway/operation.rs",
        "FingerprintSection",
        "",
    ),
    section("`[gateway.operations.age]`", "config/gateway/operation.rs", "AgeSection", ""),
    section(
        "`[gateway.operations.age.signature]`",
        "config/gateway/operation.rs",
        "SignatureSection",
        "",
    ),
    section(
        "`[gateway.operations.on_lost_answer.probe]`",
        "config/gateway/operation.rs",
        "ProbeSection",
        "Explained under [lost answers](gateway.md#lost-answers).",
    ),
    section(
        "`[gateway.tenants]`",
        "tenants/settings.rs",
        "Settings",
        "Explained in [tenants](tenants.md).",
    ),
    section(
        "`[[gateway.tenants.sources]]`, `kind = \"authorization\"`",
        "tenants/settings.rs",
        "AuthorizationSettings",
        "",
    ),
    section(
        "`[[gateway.tenants.sources]]`, `kind = \"jwt\"`",
        "tenants/settings.rs",
        "JwtSettings",
        "",
    ),
    section(
        "`[[gateway.tenants.sources]]`, `kind = \"api-keys\"`",
        "tenants/settings.rs",
        "ApiKeySettings",
        "",
    ),
    section("`[[gateway.tenants.sources.keys]]`", "tenants/settings/api_key.rs", "ApiKey", ""),
    section(
        "`[[gateway.tenants.sources]]`, `kind = \"header\"`",
        "tenants/settings.rs",
        "HeaderSettings",
        "",
    ),
    section(
        "`[[gateway.tenants.sources]]`, `kind = \"certificate\"`",
        "tenants/settings.rs",
        "CertificateSettings",
        "",
    ),
    section(
        "`[sealing]`",
        "config/sealing.rs",
        "SealingSection",
        "Explained in [encryption](encryption.md).",
    ),
    section("`[[sealing.keys]]`", "config/sealing.rs", "KeySection", ""),
    section(
        "`[worker]`",
        "config.rs",
        "WorkerSection",
        "`firstwrite worker` and `firstwrite gateway` follow it.",
    ),
    section(
        "`[destinations.NAME]`, every kind",
        "config/destinations/terms.rs",
        "TermsSection",
        "`kind` is `\"http\"`, `\"nats\"`, `\"rabbitmq\"`, `\"kafka\"` or `\"redis\"`. Explained in \
         [outbox](outbox.md).",
    ),
    section(
        "`[destinations.NAME]`, `kind = \"http\"`",
        "config/destinations/http.rs",
        "HttpSection",
        "",
    ),
    section("`[destinations.NAME.probe]`", "config/destinations/http.rs", "ProbeSection", ""),
    section(
        "`[destinations.NAME]`, `kind = \"nats\"`",
        "config/destinations/brokers.rs",
        "NatsSection",
        "Needs a build with the feature `brokers`.",
    ),
    section(
        "`[destinations.NAME]`, `kind = \"rabbitmq\"`",
        "config/destinations/brokers.rs",
        "RabbitmqSection",
        "Needs a build with the feature `brokers`.",
    ),
    section(
        "`[destinations.NAME]`, `kind = \"kafka\"`",
        "config/destinations/brokers/kafka.rs",
        "KafkaSection",
        "Needs a build with the feature `kafka`.",
    ),
    section(
        "`[destinations.NAME]`, `kind = \"redis\"`",
        "config/destinations/brokers.rs",
        "RedisSection",
        "Needs a build with the feature `brokers`.",
    ),
    section(
        "`[reconcile.NAME]`",
        "config/reconcile.rs",
        "Section",
        "Explained under [reconciliation](outbox.md#reconciliation). `destination`, `records` or both, and `http`, \
         `csv` or both.",
    ),
    section("`[reconcile.NAME.limits]`", "config/reconcile.rs", "LimitsSection", ""),
    section("`[reconcile.NAME.records]`", "config/reconcile.rs", "RecordsSection", ""),
    section("`[reconcile.NAME.http]`", "config/reconcile.rs", "HttpSection", ""),
    section("`[reconcile.NAME.csv]`", "config/reconcile.rs", "CsvSection", ""),
    section(
        "`[reconcile.NAME.http.made]`",
        "config/reconcile.rs",
        "StatusSection",
        "And `[reconcile.NAME.csv.made]`.",
    ),
    section("`[doctor]`", "config.rs", "DoctorSection", ""),
    section("`[demo]`", "config.rs", "DemoSection", ""),
];

/// Types that are called by another name in the page.
const KINDS: &[(&str, &str)] = &[
    ("Algorithm", "name of an algorithm"),
    ("Anonymous", "`true`, `false` or list of operations"),
    ("ApiKey", "section"),
    ("Collector", "address"),
    ("Destinations", "section"),
    ("Document", "`{ text = \"…\" }` or `{ file = \"…\" }`"),
    ("Duration", "length of time"),
    ("Given", "secret"),
    ("KeyDigest", "text"),
    ("Listen", "address and port"),
    ("MadeSection", "`\"all\"` or section"),
    ("NonZeroU32", "number, at least 1"),
    ("NonZeroU64", "number, at least 1"),
    ("NonZeroUsize", "number, at least 1"),
    ("OperationName", "operation"),
    ("Reconcile", "section"),
    ("Source", "section"),
    ("Span", "length of time"),
    ("StoreUrl", "address of a store"),
    ("String", "text"),
    ("Upstream", "address"),
    ("bool", "`true` or `false`"),
    ("f64", "number"),
    ("i32", "number"),
    ("tenants::Settings", "section"),
    ("u16", "number"),
    ("u32", "number"),
    ("u64", "number"),
    ("usize", "number"),
];

pub(crate) fn run(workspace: &Workspace, args: Args) -> anyhow::Result<()> {
    args.finish()?;
    let tree = Tree::read(&workspace.root)?;
    let text = page(&tree).map_err(anyhow::Error::msg)?;
    std::fs::write(workspace.root.join(PAGE), &text)
        .with_context(|| format!("cannot write {PAGE}"))?;
    println!("{PAGE}: {} sections", SECTIONS.len());
    Ok(())
}

/// The page says what the code says.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    const REASON: &str = "an operator believes the page";
    match page(tree) {
        Err(problem) => vec![Finding::new(PAGE, 0, problem, REASON)],
        Ok(text) if tree.file(PAGE).is_some_and(|file| file.text == text) => Vec::new(),
        Ok(_) => vec![Finding::new(PAGE, 0, "write it anew: cargo xtask settings", REASON)],
    }
}

/// The page as the code has it; or what cannot be said of it.
fn page(tree: &Tree) -> Result<String, String> {
    let is_meant = |path: &str| {
        (path.starts_with(CONFIG) || path.starts_with(TENANTS) || path == WORDS)
            && !APART.iter().any(|apart| path.contains(apart))
    };
    let files = tree.files.iter().filter(|file| is_meant(&file.path));
    let sources: Vec<(&str, Source)> =
        files.map(|file| (file.path.as_str(), Source::read(&file.text))).collect();
    for (path, source) in &sources {
        for one in source.structs.iter().filter(|one| one.is_section) {
            let is_known =
                |section: &Section| path.ends_with(section.file) && section.name == one.name;
            if !SECTIONS.iter().any(is_known) {
                return Err(format!("{path}: {} has no section in the page; name it", one.name));
            }
        }
    }
    let mut text = HEAD.to_owned();
    for section in SECTIONS {
        let Section { title, file, name, about } = section;
        let source = sources.iter().find(|(path, _)| path.ends_with(&format!("/{file}")));
        let found = source
            .and_then(|(_, source)| source.structs.iter().find(|one| one.name == *name))
            .ok_or_else(|| format!("{file} has no {name}"))?;
        let about = if about.is_empty() { String::new() } else { format!("{about}\n\n") };
        write!(text, "\n## {title}\n\n{about}{}", table(found, &sources)?)
            .map_err(|e| e.to_string())?;
    }
    Ok(text)
}

fn table(section: &Struct, sources: &[(&str, Source)]) -> Result<String, String> {
    let mut text =
        String::from("| setting | type | default | meaning |\n| --- | --- | --- | --- |\n");
    for field in &section.fields {
        let row = row(field, sources)
            .map_err(|problem| format!("{}.{}: {problem}", section.name, field.name))?;
        text.push_str(&row);
    }
    Ok(text)
}

fn row(field: &Field, sources: &[(&str, Source)]) -> Result<String, String> {
    let Field { name, kind, has_default, text } = field;
    let inner = inside(kind, "Option");
    let form = form(inner.unwrap_or(kind), sources)?;
    let (meaning, default) = match text.split_once("Default: ") {
        Some((meaning, default)) => (meaning.trim(), default.trim_end_matches('.').to_owned()),
        None if inner.is_none() && !has_default => (text.as_str(), "required".to_owned()),
        None if kind == "bool" => (text.as_str(), "`false`".to_owned()),
        None => (text.as_str(), "none".to_owned()),
    };
    if meaning.is_empty() {
        return Err("it needs a doc comment, which the page shows".to_owned());
    }
    let row = format!("| `{name}` | {form} | {default} | {meaning} |\n");
    if row.matches('|').count() != 5 {
        return Err("a bar in its text would end a cell of the table".to_owned());
    }
    Ok(row)
}

/// The type as a person would say it.
fn form(kind: &str, sources: &[(&str, Source)]) -> Result<String, String> {
    if let Some(inner) = inside(kind, "Vec").or_else(|| inside(kind, "BTreeSet")) {
        let inner = form(inner, sources)?;
        return Ok(if inner == "section" { inner } else { format!("list of: {inner}") });
    }
    if let Some(inner) = inside(kind, "BTreeMap") {
        let inner = form(inner.trim_start_matches("String, "), sources)?;
        return Ok(if inner == "section" { inner } else { format!("table of: {inner}") });
    }
    if let Some((_, said)) = KINDS.iter().find(|(known, _)| *known == kind) {
        return Ok((*said).to_owned());
    }
    if SECTIONS.iter().any(|section| section.name == kind) {
        return Ok("section".to_owned());
    }
    let mut words = sources.iter().flat_map(|(_, source)| &source.words);
    match words.find(|words| words.name == kind) {
        Some(words) => Ok(words.variants.join(", ")),
        None => Err(format!("the page has no word for the type {kind}")),
    }
}

/// `T` of `Outer<T>`.
fn inside<'a>(kind: &'a str, outer: &str) -> Option<&'a str> {
    kind.strip_prefix(outer)?.strip_prefix('<')?.strip_suffix('>')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(field: &str) -> Result<String, String> {
        let text = format!("struct A {{\n{field}\n}}\nenum Word {{\n    One,\n}}\n");
        let source = Source::read(&text);
        row(&source.structs[0].fields[0], &[("a", Source::read(&text))])
    }

    #[test]
    fn a_setting_is_a_row() {
        let every = said("    /// Interval of it. Default: `\"5s\"`.\n    every: Option<Span>,");
        let row = "| `every` | length of time | `\"5s\"` | Interval of it. |\n";
        assert_eq!(every.as_deref(), Ok(row));
        let word = said("    /// It.\n    word: Word,");
        assert_eq!(word.as_deref(), Ok("| `word` | `\"One\"` | required | It. |\n"));
        assert!(said("    every: Option<Span>,").unwrap_err().contains("doc comment"));
        assert!(said("    /// It.\n    every: Unknown,").unwrap_err().contains("Unknown"));
        assert!(said("    /// a | b.\n    every: Span,").unwrap_err().contains("bar"));
    }

    #[test]
    fn a_section_without_a_place_in_the_page_is_found() {
        let path = "crates/firstwrite-server/src/config/new.rs";
        let text =
            "#[serde(deny_unknown_fields)]\nstruct NewSection {\n    /// It.\n    it: bool,\n}\n";
        let problem = page(&Tree::of(&[(path, text)])).unwrap_err();
        assert!(problem.contains("NewSection"), "{problem}");
    }

    #[test]
    fn a_page_that_is_not_what_would_be_written_is_found() {
        let tree = Tree::read(&Workspace::load().unwrap().root).unwrap();
        assert_eq!(check(&tree), []);
        let mut stale = Tree::read(&Workspace::load().unwrap().root).unwrap();
        stale.files.retain(|file| file.path != PAGE);
        assert_eq!(check(&stale).len(), 1);
    }
}
