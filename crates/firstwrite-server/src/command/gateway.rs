//! The flags of the gateway, and of those who look at its settings.

use std::path::PathBuf;

use clap::Args;
use clap::builder::BoolishValueParser;

use super::STORE_ENVIRONMENT;
use super::operate::FormatFlags;

pub(super) const EXAMPLES: &str = "\
Examples:
  firstwrite gateway --upstream http://127.0.0.1:3000 --tenants authorization --create
  firstwrite gateway --upstream http://127.0.0.1:3000 --tenants single --create \\
      --operator 127.0.0.1:9464
  firstwrite gateway --upstream http://127.0.0.1:3000 --create \\
      --tenants header=x-tenant,from=10.0.0.0/8
  firstwrite gateway --config firstwrite.toml --store postgres://app@db/shop --create

The gateway cannot guess whose requests they are: without --tenants, and without
[gateway.tenants] in the config file, it explains the four choices and does not start.

The store must be there: --create makes it, and is for the first start alone. In an empty
store, every key used before would run again.

Without a config file every POST needs an Idempotency-Key, and anything but a POST passes
through. Stops on SIGTERM when what is under way has ended, and reads its config file
again on SIGHUP.

Exit codes: 0 stopped, 1 failed, 2 wrong usage, 130 cut off by Ctrl-C while it ended.";

#[derive(Debug, Default, Args)]
pub(crate) struct GatewayFlags {
    /// The API behind the gateway; give it again for several servers that do the same
    #[arg(long, value_name = "URL")]
    #[arg(env = "FIRSTWRITE_UPSTREAM", hide_env_values = true, value_delimiter = ',')]
    pub(crate) upstream: Vec<String>,
    /// Source of a request's tenant, instead of the file's [gateway.tenants]: authorization, single, jwt=… or
    /// header=…
    #[arg(long, value_name = "WHOSE")]
    #[arg(env = "FIRSTWRITE_TENANTS", hide_env_values = true)]
    pub(crate) tenants: Option<String>,
    /// Address to listen on; port 0 takes a free one [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS:PORT")]
    #[arg(env = "FIRSTWRITE_LISTEN", hide_env_values = true)]
    pub(crate) listen: Option<String>,
    /// Address of /metrics, /healthz and /readyz for operators; without it, they are not served. It
    /// asks for no credentials
    #[arg(long, value_name = "ADDRESS:PORT")]
    #[arg(env = "FIRSTWRITE_OPERATOR", hide_env_values = true)]
    pub(crate) operator: Option<String>,
    /// Send traces to this collector by OTLP over HTTP; needs a build with the feature `otlp`
    #[arg(long, value_name = "URL")]
    #[arg(env = "FIRSTWRITE_OTLP", hide_env_values = true)]
    pub(crate) otlp: Option<String>,
    /// Store of the records, sqlite:, postgres:, mysql:, redis: or dynamodb: [default: sqlite:firstwrite.db]
    #[arg(long, value_name = "URL")]
    #[arg(env = STORE_ENVIRONMENT, hide_env_values = true)]
    pub(crate) store: Option<String>,
    /// Create the store if it is not there, new and empty; otherwise, its absence is an error
    #[arg(long)]
    pub(crate) create: bool,
    /// Look into this store too, from which records are moving into --store (docs/moving.md)
    #[arg(long, value_name = "URL", conflicts_with = "moving_to")]
    #[arg(env = "FIRSTWRITE_MOVING_FROM", hide_env_values = true)]
    pub(crate) moving_from: Option<String>,
    /// Look into this store too, into which records are going to move
    #[arg(long, value_name = "URL")]
    #[arg(env = "FIRSTWRITE_MOVING_TO", hide_env_values = true)]
    pub(crate) moving_to: Option<String>,
    /// Open a Redis store also where the server evicts or forgets keys, which then run twice
    #[arg(long)]
    pub(crate) accept_key_loss: bool,
    /// Start although `forward_key`, `bind_to_principal` or what names tenants changed: keys used before may run again
    #[arg(long)]
    pub(crate) accept_changed_keys: bool,
    /// Cache completed records of a PostgreSQL store there, such as `redis://127.0.0.1:6379`
    #[arg(long, value_name = "URL")]
    #[arg(env = "FIRSTWRITE_CACHE", hide_env_values = true)]
    pub(crate) cache: Option<String>,
    /// Let a POST without a key pass through unprotected
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "true", value_parser = BoolishValueParser::new())]
    #[arg(env = "FIRSTWRITE_OPTIONAL_KEYS", hide_env_values = true, hide_possible_values = true)]
    pub(crate) optional_keys: Option<bool>,
}

pub(super) const AUDIT_EXAMPLES: &str = "\
Examples:
  firstwrite audit openapi.yaml --config firstwrite.toml
  firstwrite audit openapi.json --config firstwrite.toml --base-path /v1 --format json

POST and PATCH must be protected, or marked `unprotected` with a reason. PUT and DELETE are
idempotent by their methods, if the API keeps to that.

Exit codes: 0 no gaps, 1 there are gaps, or the document cannot be read, 2 wrong usage.";

pub(super) const CHECK_EXAMPLES: &str = "\
Examples:
  firstwrite check --config firstwrite.toml
  firstwrite check --config firstwrite.toml --upstream http://127.0.0.1:3000 --tenants single

Reads the file and everything it names (keys, certificates, environment), plans the
gateway, the worker, the demo and the doctor as their starts do, and opens no store and
no port. Give it the flags that you give to the start: a file that sets up a gateway and
lacks what the gateway needs is refused, in the words of the start. A file without a
gateway (no [gateway], or only its `default` and `operations`) or without `store` holds,
and the first line names the flags that starts must be given besides.

Exit codes: 0 it holds, 2 it does not.";

#[derive(Debug, Args)]
pub(crate) struct AuditFlags {
    /// An OpenAPI document, YAML or JSON
    #[arg(value_name = "FILE")]
    pub(crate) document: PathBuf,
    /// Prefix of every path, instead of the document's own
    #[arg(long, value_name = "PATH")]
    pub(crate) base_path: Option<String>,
    #[command(flatten)]
    pub(crate) format: FormatFlags,
}

#[derive(Debug, Args)]
pub(crate) struct CheckFlags {
    /// The store that starts are given, where the file names none
    #[arg(long, value_name = "URL")]
    #[arg(env = STORE_ENVIRONMENT, hide_env_values = true)]
    pub(crate) store: Option<String>,
    /// The API that the gateway is given, where the file has no `upstreams`
    #[arg(long, value_name = "URL")]
    #[arg(env = "FIRSTWRITE_UPSTREAM", hide_env_values = true, value_delimiter = ',')]
    pub(crate) upstream: Vec<String>,
    /// Source of a request's tenant, instead of the file's [gateway.tenants]
    #[arg(long, value_name = "WHOSE")]
    #[arg(env = "FIRSTWRITE_TENANTS", hide_env_values = true)]
    pub(crate) tenants: Option<String>,
}
