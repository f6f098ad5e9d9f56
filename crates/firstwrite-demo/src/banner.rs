//! Startup message of the demo: its address, and three commands that show what it does.

use std::collections::hash_map::RandomState;
use std::fmt::Write as _;
use std::hash::BuildHasher as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::faults::Faults;
use crate::provider::Counterpart;
use crate::webhooks;

/// The text for one start. The key in it is fresh, so that the commands do what is said of them
/// every time.
pub(crate) fn text(
    address: SocketAddr,
    program: &str,
    store: &str,
    faults: Faults,
    provider: &Counterpart,
) -> String {
    // The standard library seeds its hashers at random; that is all a fresh key needs.
    let key = format!("demo-{:016x}", RandomState::new().hash_one(address));
    let (program, place) = (word(program), word(store));
    let list = format!("{program} keys list --store {place}");
    let status = format!("{program} outbox status --store {place}");
    let payments = format!("http://{}/payments", reachable(address));
    let faults = match faults {
        Faults::Ignored => "off (start with --faults to let a request ask for trouble)",
        Faults::Honoured => "ON: any request may delay, fail or crash this process",
    };
    let mut text = format!(
        "listening on http://{address}\n\
         store: {store}\n\
         faults: {faults}\n\
         fingerprints: plain digests, with those of their parts (`explain`), so that a 422 says what differs; \
         real services key them (docs/encryption.md)\n\
         provider: {}\n",
        of_provider(provider)
    );
    for (heading, amount) in [
        ("1. First call: 201, the payment is made, and the provider has it", 4990),
        ("2. The same again: 201 with Idempotent-Replayed: true, and no second payment", 4990),
        ("3. The same key for another amount: 422 key-reused, and nothing runs", 9990),
    ] {
        writeln!(
            text,
            "\n{heading}\n\
             curl -i {payments} -H 'Authorization: Bearer demo-acme' \
             -H 'Content-Type: application/json' -H 'Idempotency-Key: \"{key}\"' \
             -d '{{\"amount\":{amount},\"currency\":\"EUR\",\"customer\":\"cus_1\"}}'"
        )
        .expect("writing to a string");
    }
    let provider = &provider.url;
    let webhooks = format!("http://{}{}", reachable(address), webhooks::PATH);
    writeln!(
        text,
        "\nWatch it settle, pending until the provider's webhook has come:\n\
         The payments:  curl -s {payments} -H 'Authorization: Bearer demo-acme'\n\
         Its ledger:    curl -s {provider}/v1/payments\n\
         \nLet it lose every second answer, then pay with other keys; leave lose_answers out to end that:\n\
         Misbehave:     curl -X PUT {provider}/control \
         -d '{{\"lose_answers\":{{\"every\":2}},\"webhooks\":{{\"url\":\"{webhooks}\"}}}}'\n\
         \nThe keys:      {list}\n\
         The messages:  {status}\n\
         Stop:          Ctrl-C"
    )
    .expect("writing to a string");
    text
}

/// Describes where the provider and its ledger are.
fn of_provider(provider: &Counterpart) -> String {
    match provider.ledger() {
        Some(ledger) => {
            format!("{}, in this process; its ledger: {}", provider.url, ledger.display())
        }
        None => provider.url.clone(),
    }
}

/// The text as one word of a shell's command.
fn word(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._/:=+,@%".contains(&byte);
    if text.bytes().all(is_plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

/// The address a caller on this machine uses: "everywhere" is no place to send a request to.
pub(crate) fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip @ (IpAddr::V4(_) | IpAddr::V6(_)) => ip,
    };
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn provider() -> Counterpart {
        Counterpart::other("http://127.0.0.1:81", crate::tests::SECRET.parse().unwrap())
    }

    #[test]
    fn the_commands_go_to_an_address_that_can_be_called() {
        let everywhere = "0.0.0.0:80".parse().unwrap();
        let text = text(everywhere, "firstwrite", "sqlite:a.db", Faults::Ignored, &provider());
        assert!(text.starts_with("listening on http://0.0.0.0:80\n"));
        assert_eq!(text.matches("\ncurl -i http://127.0.0.1:80/payments ").count(), 3);
    }

    #[test]
    fn a_path_with_spaces_stays_one_word() {
        assert_eq!(word("sqlite:/tmp/demo.db"), "sqlite:/tmp/demo.db");
        assert_eq!(word("sqlite:my demo's.db"), r"'sqlite:my demo'\''s.db'");
    }

    #[test]
    fn every_start_has_a_key_of_its_own() {
        let address = "127.0.0.1:80".parse().unwrap();
        let start = || text(address, "firstwrite", "sqlite:a.db", Faults::Ignored, &provider());
        assert_ne!(start(), start());
    }
}
