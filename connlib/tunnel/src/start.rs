//! The thread `tunnel`: sets up the event loop, then runs it.

use std::sync::{Arc, mpsc as answers};

use convoy_gso::{BoundSockets, UdpSockets};
use convoy_proto::PeerEvent;
use convoy_tun::{Coalesce, Device, spawn_reader, spawn_writer};
use tokio::{
    runtime,
    sync::{mpsc, watch},
};

use crate::{
    command::Requests,
    error::{Exit, StartError},
    event_loop::{EventLoop, Parts},
    metrics::Metrics,
    options::{Options, Switch},
};

/// The event loop's end of the channels to and from the handle.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) requests: Requests,
    pub(crate) handshake_events: mpsc::Sender<PeerEvent>,
}

/// Runs on the thread `tunnel` until the tunnel ends.
pub(crate) fn run(
    device: Device,
    options: Options,
    bound: BoundSockets,
    handle: Handle,
    started: &answers::SyncSender<Result<(), StartError>>,
    exit: &watch::Sender<Option<Exit>>,
) {
    let runtime = match runtime::Builder::new_current_thread().enable_io().build() {
        Ok(runtime) => runtime,
        Err(error) => return drop(started.send(Err(error.into()))),
    };
    runtime.block_on(async {
        match event_loop(&device, &options, bound, handle) {
            Ok(event_loop) => {
                let _ = started.send(Ok(()));
                let why = event_loop.run().await;
                exit.send_replace(Some(why));
            }
            Err(error) => drop(started.send(Err(error))),
        }
    });
}

fn event_loop(
    device: &Device,
    options: &Options,
    bound: BoundSockets,
    handle: Handle,
) -> Result<EventLoop, StartError> {
    let port = bound.port();
    let sockets = UdpSockets::register(bound)?;
    let supported = sockets.segmentation();
    let missing = |feature, option| StartError::Unsupported { feature, option };
    if options.gso == Switch::On && !supported {
        return Err(missing("UDP segmentation offload (UDP_SEGMENT)", "--gso"));
    }
    if options.udp_gro == Switch::On && !sockets.receive_offload() {
        return Err(missing("UDP receive offload (UDP_GRO)", "--udp-gro"));
    }
    let port = if options.is_up { port } else { 0 };
    let metrics = Metrics::new(device.offload(), sockets.receive_offload());
    let coalesce = Coalesce {
        tcp: true,
        udp: true,
    };
    let event_loop = EventLoop::new(Parts {
        reader: spawn_reader(device, options.batch)?,
        writer: spawn_writer(device, coalesce)?,
        // If the link is down, they were opened only to probe the kernel's features.
        sockets: options.is_up.then_some(sockets),
        port,
        aead: options.aead,
        clamp_mss: options.clamp_mss,
        segmentation: supported && options.gso != Switch::Off,
        batch: options.batch.clamp(1, convoy_tun::MAX_BATCH_PACKETS),
        awaits_configuration: options.awaits_configuration,
        has_outer: options.has_outer,
        privileged: Arc::clone(&options.privileged),
        metrics,
        requests: handle.requests,
        handshake_events: handle.handshake_events,
    })?;
    Ok(event_loop)
}
