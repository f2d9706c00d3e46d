//! A relay between two connections in memory, until both directions have ended.
//!
//! `cargo run -p convoy-network --example relay`

use convoy_network::{
    Stream,
    relay::{DEFAULT_BUFFER, Method, Moved, Relay, Tenant},
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    // Each end that a relay gets is the other end of one that a program has.
    let (mut client, near) = duplex(1 << 10);
    let (mut server, far) = duplex(1 << 10);
    let (relay, tenant, moved) = (
        Relay::new(DEFAULT_BUFFER, Method::Splice),
        Tenant::default(),
        Moved::default(),
    );
    let [near, far] = [near, far].map(|it| Stream::Other(Box::new(it)));
    let talking = async {
        client.write_all(b"question").await?;
        client.shutdown().await?;
        let mut question = String::new();
        server.read_to_string(&mut question).await?;
        server
            .write_all(format!("answer to a {question}").as_bytes())
            .await?;
        server.shutdown().await?;
        let mut answer = String::new();
        client.read_to_string(&mut answer).await?;
        std::io::Result::Ok(answer)
    };
    let (ended, answer) = tokio::join!(relay.run(near, far, &tenant, &moved), talking);
    println!("the client has heard: {}", answer?);
    println!("ended: {ended:?}, counted: {moved:?}");
    Ok(())
}
