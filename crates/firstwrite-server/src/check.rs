//! `firstwrite check`: whether a config file holds together, before anything is started with it.

use crate::command::{CheckFlags, Exit};
use crate::config::{File, UsageError};
use crate::output;

/// What was found to hold.
#[derive(Debug)]
pub(crate) struct Settings {
    said: String,
}

impl Settings {
    /// Builds everything that the file describes, and opens nothing.
    pub(crate) fn resolve(
        _flags: &CheckFlags,
        file: &File,
        path: Option<&std::path::Path>,
    ) -> Result<Self, UsageError> {
        let Some(path) = path else {
            return Err(UsageError::new("no file is named; add --config firstwrite.toml"));
        };
        let destinations = file.destinations.build()?.len();
        let sources = file.reconcile.build(&[], None)?.len();
        let operations = file.gateway.operations(None)?;
        file.gateway.tenants(&operations, || std::time::UNIX_EPOCH)?;
        file.gateway.calling()?;
        file.gateway.listening(([127, 0, 0, 1], 0).into())?;
        let is_sealed = file.sealing.ring()?.is_some();
        let said = format!(
            "{}: holds\n  upstreams     {}\n  destinations  {destinations}\n  accounts      {sources}\n  \
             sealed        {}\n",
            path.display(),
            file.gateway.upstreams.len(),
            if is_sealed { "yes" } else { "no" }
        );
        Ok(Self { said })
    }
}

pub(crate) fn run(settings: &Settings) -> anyhow::Result<Exit> {
    output::data(&settings.said)?;
    Ok(Exit::Done)
}
