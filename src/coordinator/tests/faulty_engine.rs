//! An engine that does to its caller what Docker may do: calls that fail, calls that are carried out and seem to have failed, late
//! answers, streams that are cut anywhere and end early. It wraps the fake engine, which goes away and comes back by itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use jiff::Timestamp;

use crate::engine::fake::FakeEngine;
use crate::engine::{
    AttachedStreams, ContainerInspection, ContainerSpec, Engine, EngineError, EngineEvent, EngineInfo, EngineResource,
    EngineResult, EngineStream, ImageInfo, OutputChunk, Signal,
};
use crate::ids::ContainerId;
use crate::test_rng::SeededRng;

/// How much goes wrong, in percent of the calls or streams.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct FaultRates {
    /// A call fails, and nothing was done.
    pub failed_calls: u64,
    /// A call fails, and it was done all the same.
    pub lost_replies: u64,
    /// A call takes long.
    pub slow_calls: u64,
    /// A stream ends early, or breaks.
    pub broken_streams: u64,
}

/// The engine. Clones are the same one.
#[derive(Clone)]
pub(super) struct FaultyEngine {
    inner: FakeEngine,
    state: Arc<Mutex<FaultyEngineState>>,
}

struct FaultyEngineState {
    random: SeededRng,
    rates: FaultRates,
    /// What went wrong, by call.
    counts: BTreeMap<String, u64>,
    names: BTreeMap<ContainerId, String>,
    /// Things whose maker does not know of them, or whose removal failed: `longshore gc` is for these.
    expected_leftovers: BTreeSet<String>,
}

/// What is to happen to one call.
struct CallFault {
    before: Duration,
    /// And whether it is done before it fails.
    error: Option<(EngineError, bool)>,
    after: Duration,
}

impl FaultyEngine {
    pub fn new(inner: FakeEngine, seed: u64, rates: FaultRates) -> Self {
        let state = FaultyEngineState {
            random: SeededRng(seed),
            rates,
            counts: BTreeMap::new(),
            names: BTreeMap::new(),
            expected_leftovers: BTreeSet::new(),
        };
        Self { inner, state: Arc::new(Mutex::new(state)) }
    }

    /// From now on nothing goes wrong.
    pub fn stop_faults(&self) {
        self.state.lock().unwrap().rates = FaultRates::default();
    }

    pub fn counts(&self) -> BTreeMap<String, u64> {
        self.state.lock().unwrap().counts.clone()
    }

    /// Excuses what is removed until that has succeeded: the caller may give up before.
    async fn track_removal(&self, name: String, work: impl Future<Output = EngineResult<()>>) -> EngineResult<()> {
        self.state.lock().unwrap().expected_leftovers.insert(name.clone());
        let answer = work.await;
        if answer.is_ok() {
            self.state.lock().unwrap().expected_leftovers.remove(&name);
        }
        answer
    }

    pub fn expected_leftovers(&self) -> BTreeSet<String> {
        self.state.lock().unwrap().expected_leftovers.clone()
    }

    fn next_fault(&self, operation: &'static str) -> CallFault {
        let mut state = self.state.lock().unwrap();
        let FaultyEngineState { random, rates, counts, .. } = &mut *state;
        let mut count = |what: &str| *counts.entry(format!("{operation} {what}")).or_insert(0) += 1;
        let mut wait = || match random.chance(rates.slow_calls) {
            true => {
                count("slow");
                let most = random.choose(&[200, 5_000, 90_000]);
                Duration::from_millis(random.below(most))
            }
            false => Duration::ZERO,
        };
        let (before, after) = (wait(), wait());
        let roll = random.below(100);
        let error = if roll < rates.failed_calls {
            count("failed");
            Some((random_error(operation, random), false))
        } else if roll < rates.failed_calls + rates.lost_replies {
            count("lost its answer");
            Some((random_error(operation, random), true))
        } else {
            None
        };
        CallFault { before, error, after }
    }

    async fn call_with_faults<T>(
        &self,
        operation: &'static str,
        work: impl Future<Output = EngineResult<T>>,
    ) -> EngineResult<T> {
        let CallFault { before, error, after } = self.next_fault(operation);
        tokio::time::sleep(before).await;
        if let Some((error, false)) = error {
            return Err(error);
        }
        let done = work.await;
        tokio::time::sleep(after).await;
        match error {
            Some((error, _)) => Err(error),
            None => done,
        }
    }

    /// The stream in other pieces, with an early end where the rates say so.
    fn cut_stream(
        &self,
        operation: &'static str,
        stream: BoxStream<'static, EngineResult<OutputChunk>>,
    ) -> BoxStream<'static, EngineResult<OutputChunk>> {
        let mut state = self.state.lock().unwrap();
        let FaultyEngineState { random, rates, counts, .. } = &mut *state;
        let left = random.chance(rates.broken_streams).then(|| {
            *counts.entry(format!("{operation} stream cut")).or_insert(0) += 1;
            let most = random.choose(&[10, 500, 3000]);
            random.below(most) as usize
        });
        let cut = rates.broken_streams > 0;
        let mut random = SeededRng(random.next_u64());
        let says_so = random.chance(50);
        let mut left = left;
        stream
            .flat_map(move |item| {
                let mut pieces: Vec<EngineResult<OutputChunk>> = Vec::new();
                let (bytes, wrap): (Bytes, fn(Bytes) -> OutputChunk) = match item {
                    Ok(OutputChunk::Stdout(bytes)) => (bytes, OutputChunk::Stdout),
                    Ok(OutputChunk::Stderr(bytes)) => (bytes, OutputChunk::Stderr),
                    Err(error) => return futures::stream::iter(vec![Some(Err(error))]).boxed(),
                };
                let mut rest = bytes;
                // A big one would be in thousands of pieces.
                while cut && rest.len() > 1 && pieces.len() < 6 {
                    let piece = rest.split_to(1 + random.below(rest.len() as u64 - 1) as usize);
                    pieces.push(Ok(wrap(piece)));
                }
                pieces.push(Ok(wrap(rest)));
                let mut items: Vec<Option<EngineResult<OutputChunk>>> = Vec::new();
                for piece in pieces {
                    if let (Some(left), Ok(OutputChunk::Stdout(bytes) | OutputChunk::Stderr(bytes))) =
                        (&mut left, &piece)
                    {
                        if bytes.len() > *left {
                            if says_so {
                                items.push(Some(Err(failed_error("reading output", "unexpected EOF"))));
                            }
                            items.push(None);
                            break;
                        }
                        *left -= bytes.len();
                    }
                    items.push(Some(piece));
                }
                futures::stream::iter(items).boxed()
            })
            .take_while(|item| std::future::ready(item.is_some()))
            .filter_map(std::future::ready)
            .boxed()
    }
}

fn failed_error(operation: &'static str, words: &'static str) -> EngineError {
    EngineError::Failed { operation, source: words.into() }
}

fn random_error(operation: &'static str, random: &mut SeededRng) -> EngineError {
    match random.below(4) {
        0 => failed_error(operation, "500: an injected failure"),
        1 => failed_error(operation, "connection reset by peer"),
        2 => EngineError::TimedOut { operation, after: Duration::from_secs(60) },
        _ => EngineError::Unreachable { endpoint: "fake://".to_owned(), source: "connection refused".into() },
    }
}

/// Calls that are passed on, each with its fate.
macro_rules! pass {
    ($($name:ident($($arg:ident: $type:ty),*) -> $answer:ty;)*) => {
        $(fn $name<'a>(&'a self, $($arg: $type),*) -> BoxFuture<'a, EngineResult<$answer>> {
            Box::pin(self.call_with_faults(stringify!($name), self.inner.$name($($arg),*)))
        })*
    };
}

impl Engine for FaultyEngine {
    pass! {
        image(name: &'a str) -> Option<ImageInfo>;
        images(label: &'a str) -> Vec<ImageInfo>;
        ensure_volume(name: &'a str, labels: &'a BTreeMap<String, String>) -> ();
        upload(id: &'a ContainerId, path: &'a str, tar: Bytes) -> ();
        download(id: &'a ContainerId, path: &'a str) -> EngineStream<Bytes>;
        start(id: &'a ContainerId) -> ();
        wait(id: &'a ContainerId) -> i64;
        inspect(id: &'a ContainerId) -> Option<ContainerInspection>;
        signal(id: &'a ContainerId, signal: Signal) -> ();
        pause(id: &'a ContainerId) -> ();
        unpause(id: &'a ContainerId) -> ();
        network_exists(name: &'a str) -> bool;
        remove_network(name: &'a str) -> ();
        find_resources(label: &'a str, value: Option<&'a str>) -> Vec<EngineResource>;
        top(id: &'a ContainerId) -> Vec<String>;
        events(label: &'a str, value: &'a str, since: Timestamp) -> EngineStream<EngineEvent>;
    }

    fn info(&self) -> BoxFuture<'_, EngineResult<EngineInfo>> {
        Box::pin(self.call_with_faults("info", self.inner.info()))
    }

    fn ping(&self) -> BoxFuture<'_, EngineResult<()>> {
        Box::pin(self.call_with_faults("ping", self.inner.ping()))
    }

    fn build_image<'a>(
        &'a self,
        tag: &'a str,
        context: Bytes,
        args: &'a [(String, String)],
        progress: &'a mut (dyn FnMut(&str) + Send),
    ) -> BoxFuture<'a, EngineResult<()>> {
        self.inner.build_image(tag, context, args, progress)
    }

    fn create<'a>(&'a self, spec: &'a ContainerSpec) -> BoxFuture<'a, EngineResult<ContainerId>> {
        Box::pin(async move {
            let mut made = None;
            let answer = self
                .call_with_faults("create", async {
                    made = Some(self.inner.create(spec).await?);
                    Ok(made.clone().expect("made"))
                })
                .await;
            let mut state = self.state.lock().unwrap();
            if let Some(id) = made {
                state.names.insert(id, spec.name.clone());
                if answer.is_err() {
                    state.expected_leftovers.insert(spec.name.clone());
                }
            }
            answer
        })
    }

    fn remove<'a>(&'a self, id: &'a ContainerId) -> BoxFuture<'a, EngineResult<()>> {
        Box::pin(async move {
            let name = self.state.lock().unwrap().names.get(id).cloned().unwrap_or_default();
            self.track_removal(name, self.call_with_faults("remove", self.inner.remove(id))).await
        })
    }

    fn remove_volume<'a>(&'a self, name: &'a str) -> BoxFuture<'a, EngineResult<()>> {
        Box::pin(
            self.track_removal(name.to_owned(), self.call_with_faults("remove_volume", self.inner.remove_volume(name))),
        )
    }

    fn attach<'a>(&'a self, id: &'a ContainerId) -> BoxFuture<'a, EngineResult<AttachedStreams>> {
        Box::pin(self.call_with_faults("attach", async move {
            let AttachedStreams { stdin: input, output } = self.inner.attach(id).await?;
            Ok(AttachedStreams { stdin: input, output: self.cut_stream("attach", output) })
        }))
    }

    fn logs<'a>(
        &'a self,
        id: &'a ContainerId,
        follow: bool,
    ) -> BoxFuture<'a, EngineResult<BoxStream<'static, EngineResult<OutputChunk>>>> {
        Box::pin(
            self.call_with_faults(
                "logs",
                async move { Ok(self.cut_stream("logs", self.inner.logs(id, follow).await?)) },
            ),
        )
    }
}
