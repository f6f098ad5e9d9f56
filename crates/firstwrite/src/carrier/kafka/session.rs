//! A producer whose brokers have answered.

use rdkafka::error::RDKafkaErrorCode;
use rdkafka::producer::{FutureProducer, Producer};
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;

use super::KafkaSettings;
use crate::carrier::broker::{Session, told};

/// A producer.
pub(super) struct Line {
    /// Taken only when it is dropped.
    producer: Option<FutureProducer>,
}

impl Line {
    /// Makes a producer, and asks the brokers about the topic: a record handed to a producer that reaches no
    /// broker ends in a timeout, which does not tell whether it was stored.
    pub(super) async fn connect(settings: &KafkaSettings) -> Result<Self, String> {
        let producer = settings.config().create().map_err(|error| told(&error))?;
        let line = Self { producer: Some(producer) };
        let (producer, topic) = (line.producer().clone(), settings.topic.clone());
        let ask_for = settings.timeout;
        let asked = spawn_blocking(move || {
            let metadata = producer.client().fetch_metadata(Some(&topic), ask_for);
            let metadata = metadata.map_err(|error| told(&error))?;
            match metadata.topics().iter().find(|found| found.name() == topic) {
                None => Err(format!("no broker knows the topic `{topic}`")),
                Some(found) => found.error().map_or(Ok(()), |error| {
                    let error = RDKafkaErrorCode::from(error);
                    Err(format!("the topic `{topic}`: {error}"))
                }),
            }
        });
        asked.await.map_err(|error| told(&error))??;
        Ok(line)
    }

    pub(super) fn producer(&self) -> &FutureProducer {
        self.producer.as_ref().expect("a line has its producer until it is dropped")
    }
}

impl Session for Line {
    fn is_open(&self) -> bool {
        // After a fatal error a producer takes nothing any more.
        self.producer().client().fatal_error().is_none()
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        // The last copy of a producer waits for its threads, so it goes where waiting is allowed.
        let producer = self.producer.take();
        if let Ok(runtime) = Handle::try_current() {
            drop(runtime.spawn_blocking(move || drop(producer)));
        }
    }
}
