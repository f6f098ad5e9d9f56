//! `firstwrite stores`: what each store promises, and what shows it.

use serde_json::{Value, json};

use crate::command::{Exit, StoresFlags};
use crate::config::UsageError;
use crate::output::{self, Format, Table};

mod book;

use book::{Entry, PROMISES, Statement};

const LEGEND: &str = "\
(N)   shown by N cases of the conformance suite, on the server named under TESTED ON
*     stated, not measured by the suite; `firstwrite stores NAME` says it in full, and what shows it
";

/// The stores to describe, and the format.
#[derive(Debug)]
pub(crate) struct Settings {
    entries: Vec<Entry>,
    /// One store, in full.
    is_one: bool,
    format: Format,
}

impl Settings {
    pub(crate) fn resolve(flags: &StoresFlags) -> Result<Self, UsageError> {
        let mut entries = book::entries().map_err(|error| UsageError::new(format!("{error:#}")))?;
        if let Some(name) = &flags.name {
            let known: Vec<String> = entries.iter().map(|entry| entry.stated.id.clone()).collect();
            entries.retain(|entry| entry.stated.id == *name);
            if entries.is_empty() {
                let known = known.join(", ");
                return Err(UsageError::new(format!("no store is called that; there are {known}")));
            }
        }
        Ok(Self { entries, is_one: flags.name.is_some(), format: flags.format })
    }
}

pub(crate) fn run(settings: &Settings) -> anyhow::Result<Exit> {
    let Settings { entries, is_one, format } = settings;
    match format {
        Format::Json => {
            let stores: Vec<Value> = entries.iter().map(document).collect();
            output::document(&json!({ "stores": stores }))?;
        }
        Format::Table if *is_one => output::data(&entries.iter().map(in_full).collect::<String>())?,
        Format::Table => output::data(&overview(entries))?,
    }
    Ok(Exit::Done)
}

/// Two tables: what was shown, and what is stated.
fn overview(entries: &[Entry]) -> String {
    let headings = PROMISES.map(|promise| promise.heading);
    let [one, two, three, four, five, six, seven] = headings;
    let mut shown = Table::new(["STORE", one, two, three, four, five, six, seven, "TESTED ON"]);
    let mut stated =
        Table::new(["STORE", "SERVER KILLED*", "POWER CUT*", "FAIL-OVER*", "OLDER COPY*", "HERE"]);
    for entry in entries {
        let [one, two, three, four, five, six, seven] = PROMISES.map(|promise| {
            let cases = entry.shows(&promise);
            cases.map_or(promise.otherwise.to_owned(), |cases| format!("yes ({cases})"))
        });
        let id = entry.stated.id.clone();
        let server = entry.shown.server.clone();
        shown.row([id.clone(), one, two, three, four, five, six, seven, server]);
        let [killed, power, fail_over, put_back] =
            entry.statements().map(|(_, one)| one.word.clone());
        let here = if entry.is_compiled_in() { "yes" } else { "no" };
        stated.row([id, killed, power, fail_over, put_back, here.to_owned()]);
    }
    format!("{shown}\n{stated}\n{LEGEND}HERE  whether this program can open it\n")
}

/// One store, in sentences.
fn in_full(entry: &Entry) -> String {
    let Entry { stated, shown } = entry;
    let mut lines = vec![format!("{}: {}.", stated.name, stated.meant_for)];
    lines.push(match (&stated.scheme, entry.is_compiled_in()) {
        (None, _) => "No address opens it.".to_owned(),
        (Some(scheme), true) => format!("This program can open it: {scheme}:…"),
        (Some(_), false) => "This program was built without it.".to_owned(),
    });
    lines.push(format!("\nShown by the conformance suite on {}:", shown.server));
    for promise in &PROMISES {
        lines.push(match entry.shows(promise) {
            Some(cases) => format!("  yes  {} ({cases} cases)", promise.name),
            None => format!("  NO   {}", promise.name),
        });
    }
    for (subject, count) in &shown.unclaimed {
        lines.push(format!("       {count} cases of `{subject}` do not apply: not claimed"));
    }
    lines.push("\nStated, since the suite cannot measure it:".to_owned());
    for (name, statement) in entry.statements() {
        let Statement { word, text, by } = statement;
        lines.push(format!("  {name}: {word}. {text}"));
        lines.push(match by {
            Some(by) => format!("       shown by {by}"),
            None => "       not shown by a test of ours".to_owned(),
        });
    }
    lines.push("\nLimits:".to_owned());
    lines.extend(stated.limits.texts.iter().map(|text| format!("  {text}")));
    lines.push(format!("\nMore: {}\n", stated.docs));
    lines.join("\n")
}

fn document(entry: &Entry) -> Value {
    let Entry { stated, shown } = entry;
    let promises: Vec<Value> = PROMISES
        .iter()
        .map(|promise| {
            let cases = entry.shows(promise);
            json!({ "promise": promise.name, "kept": cases.is_some(), "cases": cases.unwrap_or(0) })
        })
        .collect();
    json!({
        "store": stated.id,
        "name": stated.name,
        "compiled_in": entry.is_compiled_in(),
        "meant_for": stated.meant_for,
        "tested_on": shown.server,
        "claims": shown.claims,
        "shown": promises,
        "unclaimed": shown.unclaimed,
        "stated": {
            "server_killed": stated.killed,
            "power_cut": stated.power,
            "fail_over": stated.fail_over,
            "put_back": stated.put_back,
        },
        "limits": stated.limits.texts,
        "docs": stated.docs,
    })
}
