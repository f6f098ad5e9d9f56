//! `firstwrite demo-provider`: a payment provider that misbehaves on request.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use firstwrite_provider::{Behaviour, Delay, Options, Provider, Secret, Webhooks};

use crate::command::{Exit, ProviderFlags};
use crate::config::{self, Listen, UsageError};
use crate::opening;
use crate::output;
use crate::signals::Signals;

/// Default secret for signing webhooks. It is public: it shows how signatures work, and protects nothing.
pub(crate) const WEBHOOK_SECRET: &str = "whsec_Zmlyc3R3cml0ZS1kZW1vLXdlYmhvb2stc2VjcmV0ISE=";

/// Next to the demo's default port.
const LISTEN_DEFAULT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8090);

/// Resolved settings of `firstwrite demo-provider`.
#[derive(Debug)]
pub(crate) struct Settings {
    listen: SocketAddr,
    ledger: PathBuf,
    behaviour: Behaviour,
    seed: u64,
}

impl Settings {
    pub(crate) fn resolve(flags: &ProviderFlags) -> Result<Self, UsageError> {
        let listen = config::given("--listen", flags.listen.as_deref(), None::<Listen>)?;
        let listen = listen.map_or(LISTEN_DEFAULT, |listen| listen.0);
        if !listen.ip().is_loopback() {
            let message = "--listen: every client that reaches it can make it do anything; use a loopback \
                           address, such as 127.0.0.1:8090";
            return Err(UsageError::new(message));
        }
        Ok(Self {
            listen,
            ledger: flags.ledger.clone(),
            behaviour: behaviour(flags)?,
            seed: flags.seed,
        })
    }
}

fn behaviour(flags: &ProviderFlags) -> Result<Behaviour, UsageError> {
    let webhooks = match &flags.webhook_url {
        Some(url) => {
            let secret = flags.webhook_secret.as_deref().unwrap_or(WEBHOOK_SECRET);
            // The cause is not told: it may repeat a part of the secret.
            let Ok(secret) = Secret::new(secret) else {
                return Err(UsageError::new("--webhook-secret: whsec_ and base64 are needed"));
            };
            Some(Webhooks {
                duplicates: flags.webhook_duplicates,
                out_of_order: flags.webhook_out_of_order,
                ..Webhooks::new(url, secret)
            })
        }
        None => None,
    };
    Ok(Behaviour {
        keys: flags.keys,
        delay: Delay { before_effect: flags.delay, ..Delay::default() },
        fail_before_effect: flags.fail_before_effect,
        fail_after_effect: flags.fail_after_effect,
        lose_answers: flags.lose_answers,
        requests_per_second: flags.rate_limit,
        webhooks,
        ..Behaviour::default()
    })
}

pub(crate) fn run(settings: &Settings) -> anyhow::Result<Exit> {
    opening::service_runtime()?.block_on(async {
        let options = Options {
            listen: settings.listen,
            behaviour: settings.behaviour.clone(),
            seed: settings.seed,
            ..Options::new(&settings.ledger)
        };
        let provider = Provider::start(options).await?;
        let mut signals = Signals::listen()?;
        output::data(&banner(&provider.url(), settings))?;
        signals.received().await;
        provider.stop().await;
        Ok(Exit::Done)
    })
}

fn banner(url: &str, settings: &Settings) -> String {
    let ledger = settings.ledger.display();
    let webhooks = match &settings.behaviour.webhooks {
        Some(webhooks) => webhooks.url.as_str(),
        None => "none (start with --webhook-url)",
    };
    // A new behaviour replaces the old one, webhooks included.
    let kept = match &settings.behaviour.webhooks {
        Some(webhooks) => format!(",\"webhooks\":{{\"url\":\"{}\"}}", webhooks.url),
        None => String::new(),
    };
    format!(
        "listening on {url}\n\
         ledger: {ledger}\n\
         webhooks: {webhooks}\n\
         \n\
         1. A payment: 201, and the same again with the same key\n\
         curl -i {url}/v1/payments -H 'Content-Type: application/json' \
         -H 'Idempotency-Key: order-1' -d '{{\"amount\":4990,\"currency\":\"EUR\"}}'\n\
         \n\
         2. From now on every second answer is lost, and keys are ignored\n\
         curl -X PUT {url}/control -d '{{\"keys\":\"ignore\",\"lose_answers\":{{\"every\":2}}{kept}}}'\n\
         \n\
         3. What it really did\n\
         curl -s {url}/v1/payments\n\
         \n\
         Its behaviour:  curl -s {url}/control\n\
         Its calls:      curl -s {url}/control/requests\n\
         Stop:           Ctrl-C\n"
    )
}
