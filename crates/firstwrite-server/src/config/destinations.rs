//! The `[destinations.NAME]` sections: where messages of the outbox go.
//!
//! A section has settings that every kind of destination knows, and those of its `kind`. Secrets in it
//! are read when the destinations are made, which only `firstwrite worker` does.

#[cfg(feature = "brokers")]
mod brokers;
mod http;
mod terms;

use firstwrite::worker::Destination;
use firstwrite_core::Message;
use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

#[cfg(feature = "kafka")]
use self::brokers::KafkaSection;
#[cfg(feature = "brokers")]
use self::brokers::{NatsSection, RabbitmqSection, RedisSection};
use self::http::HttpSection;
use self::terms::TermsSection;
use super::UsageError;
use super::mistake::Mistake;

/// The words that `kind` takes.
const KINDS: &str = "`http`, `nats`, `rabbitmq`, `kafka` or `redis`";

/// The sections of one file, in the order of their names.
#[derive(Debug, Default)]
pub(crate) struct Destinations(Vec<Section>);

/// One section.
#[derive(Debug)]
struct Section {
    name: String,
    /// Offset of its beginning in the text.
    offset: usize,
    /// Its file and line, for complaints.
    place: String,
    terms: TermsSection,
    kind: KindSection,
}

/// Settings of one kind of destination.
#[derive(Debug)]
enum KindSection {
    Http(Box<HttpSection>),
    #[cfg(feature = "brokers")]
    Nats(NatsSection),
    #[cfg(feature = "brokers")]
    Rabbitmq(RabbitmqSection),
    #[cfg(feature = "kafka")]
    Kafka(KafkaSection),
    #[cfg(feature = "brokers")]
    Redis(RedisSection),
}

impl Destinations {
    /// Reads the value of `destinations`.
    pub(super) fn parse(value: Spanned<DeValue<'_>>) -> Result<Self, Mistake> {
        let span = value.span();
        let DeValue::Table(table) = value.into_inner() else {
            return Err(Mistake::at(
                span.start,
                "destinations are sections, as [destinations.NAME]",
            ));
        };
        let sections = table.into_iter().map(|(name, value)| Section::parse(&name, value));
        sections.collect::<Result<_, _>>().map(Self)
    }

    /// Notes where each section stands.
    pub(super) fn locate(&mut self, place: impl Fn(usize) -> String) {
        for section in &mut self.0 {
            section.place = place(section.offset);
        }
    }

    /// Returns true if `name` is one of them, or if they are in another file.
    pub(super) fn may_have(&self, name: &str) -> bool {
        self.0.is_empty() || self.0.iter().any(|section| section.name == name)
    }

    /// Names the destinations whose probe takes an empty list for a *no*.
    pub(crate) fn believing_empty_lists(&self) -> impl Iterator<Item = String> {
        let believing = self.0.iter().filter(|section| match &section.kind {
            KindSection::Http(http) => http.believes_empty_lists(),
            #[cfg(feature = "brokers")]
            KindSection::Nats(_) | KindSection::Rabbitmq(_) | KindSection::Redis(_) => false,
            #[cfg(feature = "kafka")]
            KindSection::Kafka(_) => false,
        });
        believing.map(|section| format!("destination {}", section.name))
    }

    /// Makes the destinations: reads what is secret, and checks each as a whole.
    pub(crate) fn build(&self) -> Result<Vec<Destination>, UsageError> {
        let build = |section: &Section| {
            section.build().map_err(|message| {
                let Section { place, name, .. } = section;
                UsageError::new(format!("{place}: destination {name}: {message}"))
            })
        };
        self.0.iter().map(build).collect()
    }
}

impl Section {
    fn parse(
        name: &Spanned<toml::de::DeString<'_>>,
        value: Spanned<DeValue<'_>>,
    ) -> Result<Self, Mistake> {
        let offset = name.span().start;
        let name = name.get_ref().to_string();
        if !Message::is_name(&name) {
            let message = "a destination's name is 1 to 64 visible characters without a colon";
            return Err(Mistake::at(offset, message));
        }
        let DeValue::Table(mut specific) = value.into_inner() else {
            let message = format!("`{name}` is a section, as [destinations.{name}]");
            return Err(Mistake::at(offset, message));
        };
        let Some(kind) = specific.remove("kind") else {
            return Err(Mistake::at(
                offset,
                format!("destination {name} has no kind: write {KINDS}"),
            ));
        };
        let mut common = DeTable::new();
        for known in TermsSection::KEYS {
            if let Some((key, value)) = specific.remove_entry(known) {
                common.insert(key, value);
            }
        }
        let kind = KindSection::parse(&kind, specific, offset)?;
        let terms = section(common, offset)?;
        Ok(Self { name, offset, place: String::new(), terms, kind })
    }

    fn build(&self) -> Result<Destination, String> {
        let mut terms = self.terms.terms()?;
        let carrier = match &self.kind {
            KindSection::Http(http) => http.build(&mut terms)?,
            #[cfg(feature = "brokers")]
            KindSection::Nats(nats) => nats.build(&self.terms, &mut terms)?,
            #[cfg(feature = "brokers")]
            KindSection::Rabbitmq(rabbitmq) => rabbitmq.build(&self.terms, &mut terms)?,
            #[cfg(feature = "kafka")]
            KindSection::Kafka(kafka) => kafka.build(&self.terms, &mut terms)?,
            #[cfg(feature = "brokers")]
            KindSection::Redis(redis) => redis.build(&self.terms, &mut terms)?,
        };
        terms.check().map_err(str::to_owned)?;
        if !terms.dedupe_for.is_zero() && terms.dedupe_for < terms.timeout {
            return Err("dedupe_for is over before a delivery is given up, so that none is sent again; make \
                        it longer than timeout, or 0s"
                .to_owned());
        }
        Ok(Destination::new(&self.name, terms, carrier))
    }
}

impl KindSection {
    fn parse(
        kind: &Spanned<DeValue<'_>>,
        settings: DeTable<'_>,
        offset: usize,
    ) -> Result<Self, Mistake> {
        let unknown = || Mistake::at(kind.span().start, format!("a destination's kind is {KINDS}"));
        let DeValue::String(word) = kind.get_ref() else { return Err(unknown()) };
        match word.as_ref() {
            "http" => section(settings, offset).map(Box::new).map(Self::Http),
            #[cfg(feature = "brokers")]
            "nats" => section(settings, offset).map(Self::Nats),
            #[cfg(feature = "brokers")]
            "rabbitmq" => section(settings, offset).map(Self::Rabbitmq),
            #[cfg(feature = "kafka")]
            "kafka" => section(settings, offset).map(Self::Kafka),
            #[cfg(not(feature = "kafka"))]
            "kafka" => {
                let message =
                    "this program was built without Kafka; build it with the feature kafka";
                Err(Mistake::at(kind.span().start, message))
            }
            #[cfg(feature = "brokers")]
            "redis" => section(settings, offset).map(Self::Redis),
            #[cfg(not(feature = "brokers"))]
            "nats" | "rabbitmq" | "redis" => {
                let message =
                    "this program was built without brokers; build it with the feature brokers";
                Err(Mistake::at(kind.span().start, message))
            }
            _ => Err(unknown()),
        }
    }
}

/// The value, or a complaint that names the setting.
fn named<T>(setting: &str, value: Result<T, String>) -> Result<T, String> {
    value.map_err(|message| format!("{setting}: {message}"))
}

/// Reads one section, with the places of what is wrong in it.
fn section<T: DeserializeOwned>(table: DeTable<'_>, offset: usize) -> Result<T, Mistake> {
    let value = Spanned::new(offset..offset, DeValue::Table(table));
    Ok(T::deserialize(ValueDeserializer::from(value))?)
}

#[cfg(test)]
mod tests;
