//! Addresses that are not connected to, however they are spelled.

use std::time::Duration;

use firstwrite::carrier::http::{HttpDestination, ProbeSettings};
use firstwrite_core::outbox::{Carrier, Delivery, Ending, Probed};

use crate::provider::{Provider, answer, carry, message};

async fn carry_to(url: &str, allowed: &[&str]) -> Delivery {
    let mut destination = HttpDestination::new(url).timeout(Duration::from_secs(5));
    for network in allowed {
        destination = destination.allow_network(network.parse().unwrap());
    }
    carry(&destination.build().unwrap()).await
}

#[tokio::test]
async fn loopback_is_not_reached_by_any_name() {
    let provider = Provider::start(|_| answer(200, "")).await;
    let port = provider.address.port();
    for host in [
        "127.0.0.1",
        "127.255.255.254",
        "localhost",
        "LOCALHOST",
        "[::1]",
        "[0:0:0:0:0:0:0:1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
        "[::]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "0.0.0.0",
        // What the system's look-up takes for 127.0.0.1 and 0.0.0.0 although no address is written so.
        "0",
        "127.1",
        "2130706433",
        "0177.0.0.1",
        "017700000001",
        "0x7f000001",
        "0x7f.0.0.1",
    ] {
        let delivery = carry_to(&format!("http://{host}:{port}/"), &[]).await;
        assert_eq!(delivery.ending, Ending::Retry, "{host}: {}", delivery.detail);
        let detail = &delivery.detail;
        assert!(detail.ends_with("the destination's allowed networks"), "{host}: {detail}");
        // TLS may stop it even earlier, since not every spelling is a name it could verify.
        let delivery = carry_to(&format!("https://{host}:{port}/"), &[]).await;
        assert_eq!(delivery.ending, Ending::Retry, "{host}: {}", delivery.detail);
    }
    assert_eq!(provider.connection_count(), 0);
}

#[tokio::test]
async fn metadata_and_private_networks_are_not_reached() {
    for host in ["169.254.169.254", "[fd00:ec2::254]", "100.100.100.200", "10.0.0.1", "192.168.0.1"]
    {
        let delivery =
            carry_to(&format!("http://{host}/latest/meta-data/"), &["127.0.0.0/8"]).await;
        assert_eq!(delivery.ending, Ending::Retry);
        assert!(delivery.detail.contains("allowed networks"), "{host}: {}", delivery.detail);
    }
}

#[tokio::test]
async fn of_a_names_addresses_the_allowed_are_tried() {
    let provider = Provider::start(|_| answer(200, "")).await;
    let port = provider.address.port();
    for host in ["localhost", "127.0.0.1", "[::ffff:127.0.0.1]"] {
        let delivery = carry_to(&format!("http://{host}:{port}/"), &["127.0.0.1"]).await;
        assert!(matches!(delivery.ending, Ending::Delivered(_)), "{host}: {}", delivery.detail);
    }
    let delivery = carry_to(&format!("http://localhost:{port}/"), &["10.0.0.0/8"]).await;
    assert_eq!(delivery.ending, Ending::Retry);
}

#[tokio::test]
async fn probes_are_guarded_alike() {
    let provider = Provider::start(|_| answer(404, "")).await;
    let template = format!("http://{}/{{key}}", provider.address);
    let carrier = HttpDestination::new("http://a.test/")
        .probe(ProbeSettings::one(&template, "/id".parse().unwrap()))
        .build()
        .unwrap();
    let probed = carrier.probe(&message()).unwrap().await;
    assert!(
        matches!(&probed, Probed::Silent(why) if why.contains("allowed networks")),
        "{probed:?}"
    );
    assert_eq!(provider.connection_count(), 0);
}
