//! `firstwrite audit`: which operations of an OpenAPI document the gateway protects, and which it does not.

use std::path::PathBuf;

use firstwrite::KeyRequirement;
use firstwrite_gateway::Operations;
use firstwrite_verify::openapi::{self, Described};
use serde::Serialize;

use crate::command::{AuditFlags, Exit};
use crate::config::{File, UsageError};
use crate::output::{self, Format, Table, printable};

/// Resolved settings of `firstwrite audit`.
#[derive(Debug)]
pub(crate) struct Settings {
    document: PathBuf,
    base_path: Option<String>,
    operations: Operations,
    format: Format,
}

/// The document of `--format json`.
#[derive(Debug, Serialize)]
struct Report {
    operations: Vec<View>,
    gaps: usize,
}

#[derive(Debug, Serialize)]
struct View {
    operation: String,
    /// `protected`, `optional key`, `unprotected`, `repeatable` or `gap`.
    protection: &'static str,
    is_gap: bool,
    detail: String,
}

impl Settings {
    pub(crate) fn resolve(flags: AuditFlags, file: &File) -> Result<Self, UsageError> {
        let base_path = flags.base_path;
        if base_path.as_ref().is_some_and(|path| !path.starts_with('/')) {
            return Err(UsageError::new("--base-path: a path is needed, such as /v1"));
        }
        Ok(Self {
            document: flags.document,
            base_path,
            operations: file.gateway.operations(None)?,
            format: flags.format.format,
        })
    }
}

pub(crate) fn run(settings: &Settings) -> anyhow::Result<Exit> {
    let described = openapi::read(&settings.document, settings.base_path.as_deref())?;
    let operations: Vec<View> =
        described.iter().map(|one| view(one, &settings.operations)).collect();
    let gaps = operations.iter().filter(|view| view.is_gap).count();
    match settings.format {
        Format::Json => output::document(&Report { operations, gaps })?,
        Format::Table => {
            let mut table = Table::new(["OPERATION", "PROTECTION", "DETAIL"]);
            for View { operation, protection, detail, .. } in &operations {
                table.row([printable(operation), (*protection).to_owned(), printable(detail)]);
            }
            let verdict = match gaps {
                0 => "no gaps: every retry of these is safe, or said not to matter\n".to_owned(),
                1 => "1 gap: a retry of it may happen twice\n".to_owned(),
                _ => format!("{gaps} gaps: retries of these may happen twice\n"),
            };
            output::data(&format!("{table}\n{verdict}"))?;
        }
    }
    Ok(if gaps == 0 { Exit::Done } else { Exit::Failed })
}

fn view(described: &Described, operations: &Operations) -> View {
    let Described { method, path, id, .. } = described;
    let policies = operations.policies();
    let named = id.clone().unwrap_or_default();
    let operation = format!("{method} {path}");
    let view = |protection, is_gap, detail| View { operation, protection, is_gap, detail };
    if let Some(reason) = policies.unprotected_reason(method, path) {
        return view("unprotected", false, reason.to_owned());
    }
    if policies.covers(method, path) {
        let policy = policies.of_route(method, path);
        return match policy.map(|policy| policy.key) {
            Some(KeyRequirement::Optional) => view(
                "optional key",
                true,
                "a request without a key is passed on unprotected".into(),
            ),
            Some(KeyRequirement::Required) | None => view("protected", false, named),
        };
    }
    // RFC 9110, 9.2.2: servers must treat these methods as idempotent. Not every API does.
    if method.is_idempotent() {
        return view(
            "repeatable",
            false,
            "idempotent by its method, if the API keeps to that".into(),
        );
    }
    view("gap", true, "add it to [[gateway.operations]], or say why it is `unprotected`".into())
}
