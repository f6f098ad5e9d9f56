//! Address of the collector that receives traces.

use std::str::FromStr;
use std::sync::Arc;

use firstwrite_gateway::Tracer;
use serde::Deserialize;

/// The address of a collector that speaks OTLP over HTTP.
#[cfg(feature = "otlp")]
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(try_from = "String")]
pub(crate) struct Collector(String);

/// In a build that cannot send traces there is none.
#[cfg(not(feature = "otlp"))]
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(try_from = "String")]
pub(crate) enum Collector {}

#[cfg(feature = "otlp")]
impl Collector {
    /// Returns the URL to which spans are posted.
    pub(super) fn endpoint(&self) -> String {
        format!("{}/v1/traces", self.0.trim_end_matches('/'))
    }

    /// Returns the tracer that connects the gateway's spans to those of other services.
    #[expect(clippy::unused_self, reason = "the twin of the one of which there is none")]
    pub(crate) fn tracer(&self) -> Arc<dyn Tracer> {
        Arc::new(super::traces::Otlp::default())
    }
}

#[cfg(not(feature = "otlp"))]
impl Collector {
    pub(crate) fn tracer(&self) -> Arc<dyn Tracer> {
        match *self {}
    }
}

impl FromStr for Collector {
    type Err = &'static str;

    #[cfg(feature = "otlp")]
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str = "the URL of a collector is needed, such as http://127.0.0.1:4318";
        let Ok(uri) = text.parse::<axum::http::Uri>() else { return Err(EXPECTED) };
        let is_http = matches!(uri.scheme_str(), Some("http" | "https"));
        let has_secrets = uri.authority().is_some_and(|authority| authority.as_str().contains('@'));
        if !is_http || has_secrets || uri.query().is_some() {
            return Err(EXPECTED);
        }
        Ok(Self(text.to_owned()))
    }

    #[cfg(not(feature = "otlp"))]
    fn from_str(_text: &str) -> Result<Self, Self::Err> {
        Err("this build cannot send traces; build it with `--features otlp`")
    }
}

impl TryFrom<String> for Collector {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}
