//! `firstwrite verify`: whether the retries of an API, ours or not, are safe.

mod print;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use firstwrite_verify::{
    EffectsBy, ErrorKind, Grade, Hook, Hooks, Operations, Plan, Reach, Report, Tenants, verify,
};

use crate::command::{BoundsFlags, EffectsFlags, Exit, MeansFlags, VerifyFlags};
use crate::config::UsageError;
use crate::opening;
use crate::output::{self, Format, Progress};

/// Resolved settings of `firstwrite verify`.
#[derive(Debug)]
pub(crate) enum Settings {
    /// Lists the checks, and sends no requests.
    List(Format),
    Verify(Box<Verification>),
}

#[derive(Debug)]
pub(crate) struct Verification {
    plan: Plan,
    min_grade: Grade,
    reports: Vec<(PathBuf, Form)>,
    format: Format,
}

/// The forms a file can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Html,
    Json,
    Junit,
}

impl Settings {
    pub(crate) fn resolve(flags: VerifyFlags) -> Result<Self, UsageError> {
        let VerifyFlags { url, method, body, headers, key_header, profile, .. } = flags;
        let format = flags.bounds.format;
        let Some(url) = url.filter(|_| !flags.bounds.list) else { return Ok(Self::List(format)) };
        let mut plan = Plan::new(url, method, read_body(&body)?);
        plan.headers = headers;
        plan.key_header = in_words(key_header.as_str());
        plan.profile = profile;
        plan.keys_are_optional = flags.optional_keys;
        plan.vary = flags.vary;
        plan.same_headers = flags.same_headers.iter().map(ToString::to_string).collect();
        plan.effects = effects(flags.effects);
        put_through(&mut plan, flags.means);
        let reports = flags.bounds.reports.iter().map(|path| Ok((path.clone(), form(path)?)));
        let reports = reports.collect::<Result<_, UsageError>>()?;
        let min_grade = flags.bounds.min_grade;
        bound(&mut plan, flags.bounds);
        Ok(Self::Verify(Box::new(Verification { plan, min_grade, reports, format })))
    }
}

pub(crate) fn run(settings: Settings) -> anyhow::Result<Exit> {
    match settings {
        Settings::List(format) => print::list(format).map(|()| Exit::Done),
        Settings::Verify(verification) => verification.run(),
    }
}

impl Verification {
    fn run(self) -> anyhow::Result<Exit> {
        let mut shown = Progress::new("checks", 0);
        let asking = verify(self.plan, |progress| {
            shown.expect(progress.checks);
            shown.show(progress.decided);
        });
        let asked = opening::runtime()?.block_on(asking);
        shown.end();
        let report = match asked {
            Ok(report) => report,
            Err(error) if error.kind() == ErrorKind::Usage => {
                output::error(&error.to_string());
                return Ok(Exit::Usage);
            }
            Err(error) => return Err(anyhow!(error)),
        };
        for (path, form) in &self.reports {
            write(path, *form, &report)?;
        }
        match self.format {
            Format::Json => output::data(&report.to_json())?,
            Format::Table => print::report(&report)?,
        }
        Ok(if report.grade <= self.min_grade { Exit::Done } else { Exit::Found })
    }
}

fn effects(flags: EffectsFlags) -> EffectsBy {
    let EffectsFlags { effects_url, effects_pointer, effects_headers, effects_webhook, id_pointer } =
        flags;
    match (effects_url, effects_webhook) {
        (Some(url), _) => {
            EffectsBy::Url { url, pointer: effects_pointer, headers: effects_headers }
        }
        (None, Some(address)) => EffectsBy::Webhook(address),
        (None, None) => EffectsBy::Ids(id_pointer.unwrap_or_else(|| "/id".to_owned())),
    }
}

fn put_through(plan: &mut Plan, flags: MeansFlags) {
    plan.other_tenant = match (flags.single_tenant, flags.other_tenant_headers) {
        (true, _) => Tenants::One,
        (false, headers) if headers.is_empty() => Tenants::Unknown,
        (false, headers) => Tenants::Other(headers),
    };
    plan.slow = flags.slow;
    plan.fault = flags.fault;
    let mut hooks = Hooks::default();
    hooks.restart = flags.restart_cmd.map(Hook::command);
    hooks.store_down = flags.store_down_cmd.map(Hook::command);
    hooks.store_up = flags.store_up_cmd.map(Hook::command);
    hooks.revoke = flags.revoke_cmd.map(Hook::command);
    plan.hooks = hooks;
    plan.retention = flags.retention;
    plan.operations = flags.openapi.map(|document| {
        let mut operations = Operations::new(document);
        operations.base_path = flags.base_path;
        operations.are_asked = flags.ask_operations;
        operations
    });
}

fn bound(plan: &mut Plan, flags: BoundsFlags) {
    plan.reach = if flags.i_own_this { Reach::Owned } else { Reach::Loopback };
    plan.ca_file = flags.ca_file;
    if let Some(seed) = flags.seed {
        plan.seed = seed;
    }
    plan.limits.racers = usize::from(flags.racers);
    plan.limits.requests = flags.requests_max;
    plan.limits.answer = flags.timeout;
    plan.limits.settle = flags.settle;
    plan.only = flags.only;
    plan.skip = flags.skip;
}

/// A body larger than this is no body to send a few hundred times.
const BODY_BYTES_MAX: u64 = 1024 * 1024;

fn read_body(text: &str) -> Result<Vec<u8>, UsageError> {
    let Some(path) = text.strip_prefix('@') else { return Ok(text.as_bytes().to_vec()) };
    let wrong = |why: String| UsageError::new(format!("--body: {path}: {why}"));
    let metadata = fs::metadata(path).map_err(|error| wrong(error.to_string()))?;
    if !metadata.is_file() {
        return Err(wrong("it is not a regular file".to_owned()));
    }
    let length = metadata.len();
    if length > BODY_BYTES_MAX {
        return Err(wrong(format!("{length} bytes; {BODY_BYTES_MAX} are taken")));
    }
    fs::read(path).map_err(|error| wrong(error.to_string()))
}

fn form(path: &Path) -> Result<Form, UsageError> {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("html" | "htm") => Ok(Form::Html),
        Some("json") => Ok(Form::Json),
        Some("xml") => Ok(Form::Junit),
        Some(_) | None => Err(UsageError::new(format!(
            "--report {}: the name must end in .html, .json or .xml (JUnit)",
            path.display()
        ))),
    }
}

fn write(path: &Path, form: Form, report: &Report) -> anyhow::Result<()> {
    let text = match form {
        Form::Html => report.to_html(),
        Form::Json => report.to_json(),
        Form::Junit => report.to_junit(),
    };
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// A header's name with the capitals that people write.
fn in_words(name: &str) -> String {
    let words = name.split('-').map(|word| {
        let mut letters = word.chars();
        let first = letters.next().map(|letter| letter.to_ascii_uppercase());
        first.into_iter().chain(letters).collect::<String>()
    });
    words.collect::<Vec<_>>().join("-")
}
