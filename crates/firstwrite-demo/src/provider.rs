//! The payment provider behind the demo: one in this process, or another that was named.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use firstwrite::ProbeForm;
use firstwrite::carrier::http::{HttpDestination, ProbeSettings, SigningSecret};
use firstwrite::reconcile::Made;
use firstwrite::worker::Destination;
use firstwrite_core::outbox::Terms;
use firstwrite_provider::{Behaviour, Keys, Options, Provider, Secret, Webhooks};

use crate::banner::reachable;
use crate::{StoreAddress, charge, webhooks};

/// The payment provider that the demo sends payments to.
#[derive(Clone, Debug)]
pub enum ProviderChoice {
    /// One in this process.
    Own,
    /// The one at this address, which signs its webhooks with this secret.
    Other {
        /// Its address, such as `http://127.0.0.1:8090`.
        url: String,
        /// The secret that its webhooks are signed with.
        secret: SigningSecret,
    },
}

/// The provider that is used.
#[derive(Debug)]
pub(crate) struct Counterpart {
    pub(crate) url: String,
    pub(crate) secret: SigningSecret,
    /// If it runs in this process: it, and where its ledger is.
    own: Option<(Provider, PathBuf)>,
}

/// Timeout of a delivery: enough for a slow provider on the same machine. A lost answer is asked about no sooner.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Time for which providers commonly recognise a key.
pub(crate) const DEDUPE_FOR: Duration = Duration::from_hours(24);
/// Short, because a person watches the demo and does not wait for an hour to see how a message ends.
const PAUSE_FIRST: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// Half a minute: longer than a database needs to come back.
const WEBHOOK_TRIES_MAX: u32 = 10;

impl Counterpart {
    /// Starts the provider, if it is ours. `demo` is where webhooks go.
    pub(crate) async fn start(
        wanted: &ProviderChoice,
        store: &StoreAddress,
        demo: SocketAddr,
    ) -> anyhow::Result<Self> {
        match wanted {
            ProviderChoice::Own => Self::start_own(store, demo).await,
            ProviderChoice::Other { url, secret } => Ok(Self::other(url, secret.clone())),
        }
    }

    pub(crate) fn other(url: &str, secret: SigningSecret) -> Self {
        Self { url: url.trim_end_matches('/').to_owned(), secret, own: None }
    }

    async fn start_own(store: &StoreAddress, demo: SocketAddr) -> anyhow::Result<Self> {
        let text = random_secret();
        let secret = text.parse().context("a secret of our own")?;
        let ledger = ledger(store);
        let demo = reachable(demo);
        let mut options = own_options(&ledger);
        if demo.ip().is_loopback() {
            let url = format!("http://{demo}{}", webhooks::PATH);
            let mut webhooks = Webhooks::new(url, Secret::new(&text)?);
            webhooks.tries_max = WEBHOOK_TRIES_MAX;
            options.behaviour.webhooks = Some(webhooks);
        } else {
            tracing::warn!(
                "the provider sends webhooks to loopback only: payments stay pending; listen on \
                 127.0.0.1 to see them settle"
            );
        }
        let provider = Provider::start(options).await.with_context(|| {
            let ledger = ledger.display();
            format!(
                "cannot start the demo's provider on {ledger}; name another with --provider URL"
            )
        })?;
        Ok(Self { url: provider.url(), secret, own: Some((provider, ledger)) })
    }

    /// Returns the path of its ledger, if it runs in this process.
    pub(crate) fn ledger(&self) -> Option<&Path> {
        self.own.as_ref().map(|(_, ledger)| ledger.as_path())
    }

    /// The provider as a destination of messages.
    ///
    /// It can be asked about a payment by its key, so an answer that was lost is asked for, and nothing
    /// is paid twice even by a provider that was told to ignore keys.
    pub(crate) fn destination(&self) -> anyhow::Result<Destination> {
        let payments = format!("{}/v1/payments", self.url);
        let asking = format!("{payments}?idempotency_key={{key}}");
        let form = ProbeForm {
            list: Some("/data".parse()?),
            key: Some("/idempotency_key".parse()?),
            // The provider lists what it made, and nothing that it declined.
            made: Made::All,
            at: Some("/created_at".parse()?),
            // It has one account, and no tokens that could be those of another.
            empty_is_absent: true,
            ..ProbeForm::default()
        };
        let probe = ProbeSettings::formed(&asking, form, "/id".parse()?);
        let mut settings = HttpDestination::new(&payments)
            .timeout(TIMEOUT)
            .provider_id("/id".parse()?)
            .probe(probe);
        for network in ["127.0.0.0/8", "::1"] {
            settings = settings.allow_network(network.parse()?);
        }
        let terms = Terms {
            timeout: TIMEOUT,
            dedupe_for: DEDUPE_FOR,
            can_be_asked: true,
            pause_first: PAUSE_FIRST,
            pause_max: PAUSE_MAX,
            ..Terms::default()
        };
        let carrier = settings.build().context("--provider")?;
        Ok(Destination::new(charge::DESTINATION, terms, Arc::new(carrier)))
    }

    pub(crate) async fn stop(self) {
        if let Some((provider, _)) = self.own {
            provider.stop().await;
        }
    }
}

/// Options of a provider that recognises a key for as long as its destination declares.
pub(crate) fn own_options(ledger: &Path) -> Options {
    let mut options = Options::new(ledger);
    options.behaviour = Behaviour { keys: Keys::ForgetAfter(DEDUPE_FOR), ..Behaviour::default() };
    options
}

/// Beside the store, or in the working directory if the store is a server.
fn ledger(store: &StoreAddress) -> PathBuf {
    match store {
        StoreAddress::Sqlite(path) => path.with_extension("provider.jsonl"),
        StoreAddress::Postgres(_)
        | StoreAddress::Mysql(_)
        | StoreAddress::Redis(_)
        | StoreAddress::Dynamodb(_) => PathBuf::from("firstwrite-demo.provider.jsonl"),
    }
}

/// Returns a random secret that only this process knows.
fn random_secret() -> String {
    // The standard library seeds its hashers at random. Hexadecimal digits are base64, too.
    let digits = (0..4).map(|number| format!("{:016x}", RandomState::new().hash_one(number)));
    format!("whsec_{}", digits.collect::<String>())
}
