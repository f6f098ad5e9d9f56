//! A gateway with an operator's listener, and what that tells.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use firstwrite_gateway::{Gateway, Metrics, MetricsLimits, Operator, Rules};
use firstwrite_testkit::AwayStore;

use crate::client::ask;
use crate::gateway::{anywhere, away_store};
use crate::wire::Message;

/// A gateway, and who watches it.
pub(crate) struct Watched {
    pub(crate) store: Arc<AwayStore>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) gateway: Gateway,
    pub(crate) operator: Operator,
}

/// Metrics by name and labels, as they stand in the text.
pub(crate) struct Scraped {
    pub(crate) text: String,
    samples: BTreeMap<String, f64>,
}

/// Enough for half a minute, on a machine that answers within a millisecond.
const ASKED_MAX: usize = 30_000;

impl Watched {
    pub(crate) async fn start(rules: Rules) -> Self {
        Self::limited(rules, MetricsLimits::default()).await
    }

    pub(crate) async fn limited(rules: Rules, limits: MetricsLimits) -> Self {
        let store = away_store();
        let metrics = Arc::new(Metrics::new(limits));
        let counting = metrics.counting(store.clone());
        let rules =
            Rules { observer: Some(metrics.clone()), metrics: Some(Arc::clone(&metrics)), ..rules };
        let gateway = Gateway::start(Arc::clone(&counting), &anywhere(), rules).await.unwrap();
        let nowhere_else = SocketAddr::from(([127, 0, 0, 1], 0));
        let operator = Operator::start(nowhere_else, counting, Arc::clone(&metrics)).await.unwrap();
        Self { store, metrics, gateway, operator }
    }

    pub(crate) async fn ask(&self, request: &str) -> Message {
        ask(self.gateway.address(), request).await
    }

    pub(crate) async fn operator(&self, path: &str) -> Message {
        let request = format!("GET {path} HTTP/1.1\r\nhost: gateway\r\n\r\n");
        ask(self.operator.address(), &request).await
    }

    pub(crate) async fn scrape(&self) -> Scraped {
        let answer = self.operator("/metrics").await;
        assert_eq!(answer.status(), 200);
        Scraped::read(answer.text())
    }

    /// Scrapes until a sample is as wanted.
    pub(crate) async fn scrape_until(&self, sample: &str, wanted: f64) -> Scraped {
        for _ in 0..ASKED_MAX {
            let scraped = self.scrape().await;
            if scraped.is(sample, wanted) {
                return scraped;
            }
        }
        panic!("{sample} never became {wanted}:\n{}", self.scrape().await.text);
    }

    /// Asks whether it is ready until the status is as wanted.
    pub(crate) async fn ready_until(&self, status: u16) -> Message {
        for _ in 0..ASKED_MAX {
            let answer = self.operator("/readyz").await;
            if answer.status() == status {
                return answer;
            }
        }
        panic!("readiness never became {status}");
    }
}

impl Scraped {
    fn read(text: String) -> Self {
        assert!(text.ends_with("# EOF\n"), "{text}");
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let sample = |line: &str| {
            let (name, value) = line.rsplit_once(' ').unwrap();
            (name.to_owned(), value.parse().unwrap())
        };
        let samples = lines.map(sample).collect();
        Self { text, samples }
    }

    pub(crate) fn is(&self, sample: &str, wanted: f64) -> bool {
        self.get(sample).is_some_and(|value| (value - wanted).abs() < 1e-9)
    }

    pub(crate) fn get(&self, sample: &str) -> Option<f64> {
        self.samples.get(&format!("firstwrite_{sample}")).copied()
    }

    /// All samples of a metric.
    pub(crate) fn all(&self, name: &str) -> Vec<(&str, f64)> {
        let start = format!("firstwrite_{name}{{");
        let found = self.samples.iter().filter(|(sample, _)| sample.starts_with(&start));
        found.map(|(sample, value)| (&sample[start.len()..sample.len() - 1], *value)).collect()
    }

    /// That each of these is so.
    pub(crate) fn assert(&self, samples: &[(&str, f64)]) {
        for (sample, wanted) in samples {
            assert!(self.is(sample, *wanted), "{sample} is not {wanted}:\n{}", self.text);
        }
    }
}
