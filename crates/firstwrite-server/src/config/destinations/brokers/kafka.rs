//! Destinations on Kafka.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use firstwrite::carrier::kafka::{KafkaCarrier, KafkaSettings};
use firstwrite_core::outbox::{Carrier, Terms};
use serde::Deserialize;

use super::super::super::given::Given;
use super::{TermsSection, carrier, named, timeout};

/// Time that the carrier adds to both of its time limits.
const GRACE: Duration = Duration::from_secs(10);

/// The settings of `kind = "kafka"`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct KafkaSection {
    /// Address of a broker, `host:9092`, or of several separated by commas.
    servers: Given,
    /// Topic that messages are written to.
    topic: String,
    /// Options of librdkafka by their names.
    #[serde(default)]
    options: BTreeMap<String, Given>,
}

impl KafkaSection {
    pub(in super::super) fn build(
        &self,
        section: &TermsSection,
        terms: &mut Terms,
    ) -> Result<Arc<dyn Carrier>, String> {
        let servers = named("servers", self.servers.read())?;
        let mut settings = KafkaSettings::new(servers, &self.topic);
        for (name, value) in &self.options {
            let value = named(&format!("option {name}"), value.read())?;
            settings.options.insert(name.clone(), value);
        }
        settings.timeout = timeout(section, terms);
        terms.timeout = terms.timeout.saturating_add(GRACE);
        carrier(KafkaCarrier::new(settings))
    }
}
