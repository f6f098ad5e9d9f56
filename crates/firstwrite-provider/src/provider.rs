//! The provider as its owner holds it: started, told how to behave, asked for the truth, stopped.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, RwLock};
use std::thread;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::api;
use crate::behaviour::Behaviour;
use crate::book::Question;
use crate::clock::Clock;
use crate::conduct::Conduct;
use crate::error::{ErrorKind, ProviderError};
use crate::ledger::LedgerFile;
use crate::payment::Payment;
use crate::plant::Plant;
use crate::requests::Requests;
use crate::serving;
use crate::shared::{Shared, UNDER_WAY_MAX};
use crate::webhook::{self, WebhookCounts};
use crate::writer::Writer;

/// Options of a provider.
#[derive(Clone, Debug)]
pub struct Options {
    /// The file of its ledger; it is begun if there is none.
    pub ledger: PathBuf,
    /// A loopback address; port 0 takes any that is free.
    pub listen: SocketAddr,
    /// Initial behaviour.
    pub behaviour: Behaviour,
    /// Seed of the random faults.
    pub seed: u64,
    /// Source of its time.
    pub clock: Clock,
    /// Largest number of payments in the ledger.
    pub payments_max: usize,
}

/// A provider that runs. Dropping it ends it as well, without waiting.
#[derive(Debug)]
pub struct Provider {
    address: SocketAddr,
    shared: Arc<Shared>,
    /// Dropped to stop.
    running: watch::Sender<()>,
    serving: JoinHandle<()>,
    sending: JoinHandle<()>,
    writing: thread::JoinHandle<()>,
}

impl Options {
    /// All of them are kept in memory: about 300 bytes each, so 150 MB.
    pub const PAYMENTS_MAX_DEFAULT: usize = 500_000;

    /// A provider that behaves well, on any free port.
    pub fn new(ledger: impl Into<PathBuf>) -> Self {
        Self {
            ledger: ledger.into(),
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            behaviour: Behaviour::default(),
            seed: 0,
            clock: Clock::system(),
            payments_max: Self::PAYMENTS_MAX_DEFAULT,
        }
    }
}

impl Provider {
    /// Reads the ledger and begins to listen.
    pub async fn start(options: Options) -> Result<Self, ProviderError> {
        let Options { ledger, listen, behaviour, seed, clock, payments_max } = options;
        let conduct = Conduct::new(behaviour, seed)?;
        if !listen.ip().is_loopback() {
            // A client that reaches the provider controls it completely.
            let detail = format!("{listen} is not on loopback");
            return Err(ProviderError::new(ErrorKind::Listen, detail));
        }
        let (file, ledger) = tokio::task::spawn_blocking(move || LedgerFile::open(&ledger))
            .await
            .map_err(|error| ProviderError::stopped().with_source(error))??;
        let book = ledger.into_book();
        let owed = book.owed();
        if book.len() > payments_max {
            let detail = format!("the ledger holds {} payments, and may not", book.len());
            return Err(ProviderError::new(ErrorKind::Full, detail));
        }
        let unheard = |error| {
            let detail = format!("cannot listen on {listen}");
            ProviderError::new(ErrorKind::Listen, detail).with_source(error)
        };
        let listener = TcpListener::bind(listen).await.map_err(unheard)?;
        let address = listener.local_addr().map_err(unheard)?;

        let book = Arc::new(RwLock::new(book));
        let writer = Writer::new(file, Arc::clone(&book), clock.clone(), payments_max);
        let (writer, writing) = writer.spawn().map_err(|error| {
            ProviderError::new(ErrorKind::Ledger, "cannot start its thread").with_source(error)
        })?;
        let (mailbox, postman) = webhook::mailbox(clock.clone(), writer.clone());
        let (running, stopping) = watch::channel(());
        let shared =
            Arc::new(Shared::new(writer, mailbox, book, conduct, (clock, stopping.clone())));
        let router = api::router(Arc::clone(&shared));
        let webhooks = shared.conduct().webhooks.clone();
        if let Some(webhooks) = webhooks.filter(|_| !owed.is_empty()) {
            tracing::info!(count = owed.len(), "webhooks that nobody took are sent again");
            let shared = Arc::clone(&shared);
            // Ends with the task that sends.
            tokio::spawn(async move { shared.mailbox.settled_before(&owed, &webhooks).await });
        }
        Ok(Self {
            address,
            shared,
            running,
            serving: tokio::spawn(serving::serve(listener, router, stopping)),
            sending: tokio::spawn(postman.run()),
            writing,
        })
    }

    /// Returns the address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the address on which it listens as the beginning of a URL: `http://127.0.0.1:1234`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Changes the behaviour from the next call on. All counters and random sequences start anew. On an error
    /// the old behaviour stays.
    pub fn behave(&self, behaviour: Behaviour) -> Result<(), ProviderError> {
        self.shared.conduct().change(behaviour)
    }

    /// Returns the current behaviour.
    pub fn behaviour(&self) -> Behaviour {
        self.shared.conduct().behaviour.clone()
    }

    /// The truth: every payment that was made, duplicates and foreign ones included, in the order of
    /// making and as it was made, whatever is reported. It is what stands in the ledger.
    pub fn payments(&self) -> Vec<Payment> {
        self.shared.book().effects()
    }

    /// Every payment that is reported, as it is reported, oldest first.
    pub fn reported(&self) -> Vec<Payment> {
        self.shared.book().list(&Question::default(), usize::MAX).0
    }

    /// Plants a discrepancy. Returns the payment it is about, as it is reported from now on; the one
    /// that is removed as it was last.
    pub async fn plant(&self, plant: Plant) -> Result<Payment, ProviderError> {
        self.shared.writer.plant(plant).await
    }

    /// Returns the number of calls by kind.
    pub fn requests(&self) -> Requests {
        self.shared.requests.read()
    }

    /// Returns the number of webhooks by result.
    pub fn webhooks(&self) -> WebhookCounts {
        self.shared.mailbox.counts()
    }

    /// Ends it: connections are closed, payments under way are made or never will be, webhooks that
    /// wait are left to the next start. Afterwards the ledger can be opened by another.
    pub async fn stop(self) {
        let Self { shared, running, serving, sending, writing, .. } = self;
        drop(running);
        if let Err(error) = serving.await {
            tracing::error!(%error, "serving broke off");
        }
        match shared.places.acquire_many(UNDER_WAY_MAX).await {
            Ok(places) => places.forget(),
            Err(error) => tracing::debug!(%error, "no payment is under way"),
        }
        sending.abort();
        shared.writer.stop().await;
        let ended = tokio::task::spawn_blocking(move || writing.join()).await;
        if !matches!(ended, Ok(Ok(()))) {
            tracing::error!("the ledger's writer broke off");
        }
    }
}
