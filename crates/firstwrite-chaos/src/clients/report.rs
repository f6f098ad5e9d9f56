//! Findings of a run of clients.

use std::fmt;

use anyhow::bail;

use super::ledger::Fault;

/// So many findings are spelled out; the rest is counted.
const SPELLED_OUT_MAX: usize = 20;

/// The end of a run.
#[derive(Debug)]
pub(crate) struct Report {
    pub(super) kills: u64,
    pub(super) keys: usize,
    pub(super) answers: u64,
    /// Number of answers which said that the final one is still to come.
    pub(super) interim: u64,
    pub(super) replays: u64,
    pub(super) refusals: u64,
    pub(super) cut_off: u64,
    pub(super) under_load: u64,
    pub(crate) faults: Vec<(Fault, String)>,
    pub(super) seed: u64,
    pub(super) seconds: f64,
}

impl Report {
    pub(crate) fn count(&self, fault: Fault) -> usize {
        self.faults.iter().filter(|(own, _)| *own == fault).count()
    }

    /// An error if anything was found, or if nothing was compared.
    pub(crate) fn judge(&self) -> anyhow::Result<()> {
        if !self.faults.is_empty() {
            bail!("{} findings", self.faults.len());
        }
        if self.under_load == 0 || self.replays == 0 {
            bail!("nothing was compared; the clients never got through");
        }
        Ok(())
    }

    /// For a run that is made to lose acknowledged answers: an error unless it noticed. One that was lost
    /// and made anew is about another payment; and a service that notices the loss itself refuses keys
    /// for good, which are missing then.
    pub(crate) fn judge_loss(&self) -> anyhow::Result<usize> {
        let seen = [Fault::Lost, Fault::Changed, Fault::Missing];
        match seen.into_iter().map(|fault| self.count(fault)).sum() {
            0 => bail!("no acknowledged answer was lost, or this run cannot see it"),
            count => Ok(count),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "kills             {}", self.kills)?;
        writeln!(f, "keys              {}", self.keys)?;
        writeln!(f, "answers seen      {}", self.answers)?;
        writeln!(f, "  between kills   {}", self.under_load)?;
        writeln!(f, "  interim         {}", self.interim)?;
        writeln!(f, "replays compared  {}", self.replays)?;
        writeln!(f, "told to wait      {}", self.refusals)?;
        writeln!(f, "cut off           {}", self.cut_off)?;
        writeln!(f, "duplicates        {}", self.count(Fault::Duplicate))?;
        writeln!(f, "lost answers      {}", self.count(Fault::Lost))?;
        writeln!(f, "changed answers   {}", self.count(Fault::Changed))?;
        writeln!(f, "missing           {}", self.count(Fault::Missing))?;
        writeln!(f, "never settled     {}", self.count(Fault::Pending))?;
        writeln!(f, "unexpected        {}", self.count(Fault::Unexpected))?;
        writeln!(f, "seed              {}", self.seed)?;
        writeln!(f, "seconds           {:.1}", self.seconds)?;
        for (fault, line) in self.faults.iter().take(SPELLED_OUT_MAX) {
            writeln!(f, "{fault:?}: {line}")?;
        }
        Ok(())
    }
}
