//! The flags of `firstwrite stores`.

use clap::Args;

use crate::output::Format;

pub(super) const EXAMPLES: &str = "\
Examples:
  firstwrite stores               what each store promises
  firstwrite stores redis         one of them in full, with its limits
  firstwrite stores --format json

Exit codes: 0 done, 1 failed, 2 wrong usage.";

#[derive(Debug, Args)]
pub(crate) struct StoresFlags {
    /// Only this store, in full
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Output format: for people, or one JSON document
    #[arg(long, value_enum, default_value = "table", value_name = "table|json")]
    #[arg(hide_possible_values = true)]
    pub(crate) format: Format,
}
