//! A payment under one key: run `firstwrite demo` beside it, kill it, run it again.
#![expect(clippy::print_stdout, reason = "telling how it ended is what the example is for")]

use firstwrite_client::{Bearer, Client, FileStorage, transport::HyperTransport};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let builder = Client::builder(FileStorage::open("intents")?, HyperTransport::plain());
    let api = builder.credentials(Bearer::new("demo-acme")?).build();
    let body = serde_json::json!({"amount": 4990, "currency": "EUR", "customer": "cart7"});
    let pay = api.intent("cart7").post_json("http://127.0.0.1:8080/payments", &body).open().await?;
    println!("{:?}", pay.send().await?);
    Ok(pay.acknowledge().await?)
}
