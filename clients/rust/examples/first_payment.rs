//! A payment under one key: run `firstwrite demo` beside it, kill it, run it again.
#![expect(clippy::print_stdout, reason = "telling how it ended is what the example is for")]

use firstwrite_client::transport::HyperTransport;
use firstwrite_client::{Bearer, Client, End, FileStorage};

pub(crate) async fn pay(url: &str) -> Result<(), Box<dyn std::error::Error>> {
    let client = Client::builder(FileStorage::open("intents")?, HyperTransport::plain())
        .credentials(Bearer::new("demo-acme")?)
        .build();
    let order = serde_json::json!({"amount": 4990, "currency": "EUR", "customer": "cart_42"});
    let pay = client.intent("checkout/cart_42").post_json(url, &order).open().await?;
    match pay.send().await? {
        End::Done(done) => println!("paid: {}", done.answer.json::<serde_json::Value>()?["id"]),
        End::Refused(_) => println!("not paid, and nothing happened"),
        End::Unknown(_) | End::Expired(_) => println!("may be paid; a person finds out"),
    }
    Ok(pay.acknowledge().await?)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    pay("http://127.0.0.1:8080/payments").await
}
