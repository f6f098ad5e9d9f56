//! Actions on the server that the user allows: restart it, take its store away, revoke credentials.

use std::fmt;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::process::Command;
use tokio::time::timeout;

/// Something that is done on demand.
#[derive(Clone)]
pub struct Hook(Arc<dyn Fn() -> Doing + Send + Sync>);

type Doing = BoxFuture<'static, Result<(), String>>;

/// A server that has not come back by then will not.
const HOOK_MAX: Duration = Duration::from_mins(1);

impl Hook {
    /// A shell command; it must end by itself, so a server that it starts belongs into the background.
    pub fn command(text: impl Into<String>) -> Self {
        let text: String = text.into();
        Self::new(move || {
            let text = text.clone();
            Box::pin(async move { run(&text).await })
        })
    }

    /// Anything else.
    pub fn new(
        done: impl Fn() -> BoxFuture<'static, Result<(), String>> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(done))
    }

    pub(crate) async fn call(&self) -> Result<(), String> {
        self.0().await
    }
}

async fn run(text: &str) -> Result<(), String> {
    let mut command = Command::new("sh");
    // What a server in the background says must not keep this waiting, nor land in the report.
    command.arg("-c").arg(text).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|error| format!("cannot run `{text}`: {error}"))?;
    match timeout(HOOK_MAX, child.wait()).await {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(format!("`{text}` ended with {status}")),
        Ok(Err(error)) => Err(format!("`{text}`: {error}")),
        Err(_) => {
            // It is ours, and it does not end.
            drop(child.start_kill());
            Err(format!("`{text}` did not end within {} s", HOOK_MAX.as_secs()))
        }
    }
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hook")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_command_that_fails_is_named() {
        assert_eq!(Hook::command("true").call().await, Ok(()));
        let failed = Hook::command("exit 3").call().await.unwrap_err();
        assert!(failed.contains("exit 3") && failed.contains("status: 3"), "{failed}");
    }
}
