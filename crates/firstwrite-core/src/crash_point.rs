//! Named places at which a test kills the process.
//!
//! A point compiles to nothing unless the feature `crash-points` is on. With it,
//! `FIRSTWRITE_CRASH_AT=name:nth` in the environment makes the process send itself `SIGKILL` when it
//! passes that point for the nth time, counted from 1; `list:0` makes it print each point it passes to
//! standard error. This is the only place in this crate that reads the environment, and no build for
//! users contains it.

/// Marks a place where a death is of interest, by a name that no other place has.
#[cfg(feature = "crash-points")]
#[doc(hidden)]
#[macro_export]
macro_rules! crash_point {
    ($name:literal) => {
        $crate::crash_point::pass($name)
    };
}

/// Marks a place where a death is of interest, by a name that no other place has.
#[cfg(not(feature = "crash-points"))]
#[doc(hidden)]
#[macro_export]
macro_rules! crash_point {
    ($name:literal) => {};
}

#[cfg(feature = "crash-points")]
pub use chosen::pass;

#[cfg(feature = "crash-points")]
mod chosen {
    use std::io::Write as _;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use rustix::process::{Signal, getpid, kill_process};

    /// The point to die at, and how often the process has passed it.
    struct Chosen {
        name: String,
        nth: u64,
        passed: AtomicU64,
    }

    /// Pause before the kill. This thread does nothing more, but a peer that was told too early that
    /// the point had been passed gets time to act on it, so that the mistake shows.
    const GRACE: Duration = Duration::from_millis(20);

    static CHOSEN: OnceLock<Option<Chosen>> = OnceLock::new();

    /// Returns, or kills the process if this is the chosen point.
    pub fn pass(name: &str) {
        let Some(chosen) = CHOSEN.get_or_init(read) else { return };
        if chosen.nth == 0 {
            // If standard error is closed, there is nowhere to report it.
            drop(writeln!(std::io::stderr(), "passed {name}"));
        }
        if chosen.name == name && chosen.passed.fetch_add(1, Ordering::Relaxed) + 1 == chosen.nth {
            std::thread::park_timeout(GRACE);
            kill_process(getpid(), Signal::KILL).expect("a process may kill itself");
            // The signal is on its way; nothing more may happen here before it arrives.
            loop {
                std::thread::park();
            }
        }
    }

    fn read() -> Option<Chosen> {
        let text = std::env::var("FIRSTWRITE_CRASH_AT").ok()?;
        let (name, nth) = text.rsplit_once(':').expect("FIRSTWRITE_CRASH_AT is name:nth");
        let nth = nth.parse().expect("FIRSTWRITE_CRASH_AT ends in a number");
        Some(Chosen { name: name.to_owned(), nth, passed: AtomicU64::new(0) })
    }
}
