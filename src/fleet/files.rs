//! The control side of a target elsewhere: each method of [`Files`] a call, bounded in time.
//!
//! In a child process where the library needs that, over a pipe; in a thread for directories of this computer's, since
//! the kernel waits for ever for the server of a network mount.

use std::io::BufRead;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use crate::error::{Error, Kind, Phase, Result};
use crate::fleet::child::{Spawned, Voice, say};
use crate::fleet::wire::{Answer, Call, Errand, receive, send};
use crate::target::{self, Control, Entry, Facts, Files, Login, Protocol};

/// Time beyond the login's own timeout after which silence is final.
const GRACE: Duration = Duration::from_secs(5);

/// The parent's side.
pub(super) struct Remote {
    link: Link,
    answers: Receiver<Result<Answer>>,
    patience: Duration,
}

/// The way to where calls are performed.
enum Link {
    Child(Spawned),
    Thread(Sender<Call>),
    /// It gave no answer once, so none of its later ones could be told apart.
    GivenUp,
}

impl Remote {
    /// In a thread. One that hangs in the kernel can't be ended: it is left behind, and ends with the process.
    pub(super) fn start_thread(protocol: &'static Protocol, login: &Login) -> Result<Self> {
        let (calls, orders) = channel();
        let (sender, answers) = channel();
        let copy = login.clone();
        let body = move || {
            let opened = (protocol.control)(&copy).and_then(directory);
            let mut files = match opened {
                Ok(files) => files,
                Err(error) => return drop(sender.send(Err(error))),
            };
            let mut answer = Answer::Done;
            while sender.send(Ok(answer)).is_ok() {
                let Ok(call) = orders.recv() else { return };
                answer = perform(files.as_mut(), call).unwrap_or_else(Answer::Failed);
            }
        };
        std::thread::Builder::new()
            .name("files".into())
            .spawn(body)
            .map_err(|error| Error::io(Phase::Prepare, &error, "start a thread for a directory"))?;
        let mut remote = Self {
            link: Link::Thread(calls),
            answers,
            // Writing back what the kernel still holds may take a while.
            patience: login.connect_timeout().max(login.io_timeout()) + GRACE,
        };
        remote.answer().map(|_| remote)
    }

    /// In a child process.
    pub(super) fn start(login: &Login) -> Result<Self> {
        let mut child = Spawned::start(&Errand::Files {
            login: login.clone(),
        })?;
        let output = child.output.take();
        let (sender, answers) = channel();
        let listen = move || {
            let mut output = output;
            while let Some(answer) = output.as_mut().map_or(Ok(None), receive).transpose() {
                let last = answer.is_err();
                if sender.send(answer).is_err() || last {
                    return;
                }
            }
        };
        std::thread::Builder::new()
            .name("files".into())
            .spawn(listen)
            .map_err(|error| {
                Error::io(
                    Phase::Prepare,
                    &error,
                    "start a thread for a worker process",
                )
            })?;
        let mut remote = Self {
            link: Link::Child(child),
            answers,
            patience: login.connect_timeout() + GRACE,
        };
        // The child answers once for the connection itself.
        remote.answer().map(|_| remote)
    }

    fn answer(&mut self) -> Result<Answer> {
        match self.answers.recv_timeout(self.patience) {
            Ok(Ok(Answer::Failed(error)) | Err(error)) => Err(error),
            Ok(Ok(answer)) => Ok(answer),
            Err(RecvTimeoutError::Timeout) => {
                // A child is killed with its link.
                self.link = Link::GivenUp;
                let message = format!("no answer within {} s", self.patience.as_secs());
                Err(Error::new(Phase::Open, Kind::TimedOut, message))
            }
            Err(RecvTimeoutError::Disconnected) => {
                self.link = Link::GivenUp;
                Err(gone())
            }
        }
    }

    fn call(&mut self, call: Call) -> Result<Answer> {
        match &mut self.link {
            Link::Child(child) => send(&mut child.input, &call)?,
            Link::Thread(calls) => calls.send(call).map_err(|_| gone())?,
            Link::GivenUp => return Err(gone()),
        }
        self.answer()
    }

    fn act(&mut self, call: Call) -> Result<()> {
        self.call(call).map(drop)
    }
}

fn gone() -> Error {
    Error::new(
        Phase::Open,
        Kind::Gone,
        "it had stopped answering before, or its worker died",
    )
}

fn strange(answer: &Answer) -> Error {
    Error::new(
        Phase::Open,
        Kind::Protocol,
        format!("a worker process answered out of turn: {answer:?}"),
    )
}

impl Files for Remote {
    fn facts(&mut self) -> Result<Facts> {
        match self.call(Call::Facts)? {
            Answer::Facts(facts) => Ok(facts),
            other => Err(strange(&other)),
        }
    }

    fn list(&mut self, directory: &str) -> Result<Vec<Entry>> {
        match self.call(Call::List(directory.into()))? {
            Answer::Entries(entries) => Ok(entries),
            other => Err(strange(&other)),
        }
    }

    fn make_directory(&mut self, path: &str) -> Result<()> {
        self.act(Call::MakeDirectory(path.into()))
    }

    fn create(&mut self, path: &str) -> Result<()> {
        self.act(Call::Create(path.into()))
    }

    fn put(&mut self, path: &str, content: &[u8]) -> Result<()> {
        self.act(Call::Put(path.into(), content.to_vec()))
    }

    fn get(&mut self, path: &str, limit: usize) -> Result<Vec<u8>> {
        match self.call(Call::Get(path.into(), limit))? {
            Answer::Bytes(bytes) => Ok(bytes),
            other => Err(strange(&other)),
        }
    }

    fn size(&mut self, path: &str) -> Result<u64> {
        match self.call(Call::Size(path.into()))? {
            Answer::Size(size) => Ok(size),
            other => Err(strange(&other)),
        }
    }

    fn unwritten(&mut self, path: &str) -> Result<Option<u64>> {
        match self.call(Call::Unwritten(path.into()))? {
            Answer::Perhaps(bytes) => Ok(bytes),
            other => Err(strange(&other)),
        }
    }

    fn remove(&mut self, path: &str) -> Result<()> {
        self.act(Call::Remove(path.into()))
    }

    fn remove_directory(&mut self, path: &str) -> Result<()> {
        self.act(Call::RemoveDirectory(path.into()))
    }

    fn direct_alignment(&mut self, path: &str) -> Result<Option<u64>> {
        match self.call(Call::DirectAlignment(path.into()))? {
            Answer::Perhaps(bytes) => Ok(bytes),
            other => Err(strange(&other)),
        }
    }

    fn drop_cache(&mut self, path: &str) -> Result<()> {
        self.act(Call::DropCache(path.into()))
    }
}

fn directory(control: Control) -> Result<Box<dyn Files>> {
    match control {
        Control::Files(files) => Ok(files),
        Control::Device(_) | Control::Volatile(_) => Err(Error::new(
            Phase::Open,
            Kind::Unsupported,
            "this target has no directory",
        )),
    }
}

/// The child's side: answers calls until the parent closes the pipe.
pub(super) fn serve(login: &Login, input: &mut impl BufRead, voice: &Voice) -> Result<()> {
    let opened = target::find(&login.spec)
        .and_then(|protocol| (protocol.control)(login))
        .and_then(directory);
    let mut files = match opened {
        Ok(files) => files,
        Err(error) => return say(voice, &Answer::Failed(error)),
    };
    say(voice, &Answer::Done)?;
    while let Some(call) = receive::<Call>(input)? {
        let answer = perform(files.as_mut(), call).unwrap_or_else(Answer::Failed);
        say(voice, &answer)?;
    }
    Ok(())
}

fn perform(files: &mut dyn Files, call: Call) -> Result<Answer> {
    let done = |()| Answer::Done;
    match call {
        Call::Facts => files.facts().map(Answer::Facts),
        Call::List(path) => files.list(&path).map(Answer::Entries),
        Call::MakeDirectory(path) => files.make_directory(&path).map(done),
        Call::Create(path) => files.create(&path).map(done),
        Call::Put(path, content) => files.put(&path, &content).map(done),
        Call::Get(path, limit) => files.get(&path, limit).map(Answer::Bytes),
        Call::Size(path) => files.size(&path).map(Answer::Size),
        Call::Unwritten(path) => files.unwritten(&path).map(Answer::Perhaps),
        Call::Remove(path) => files.remove(&path).map(done),
        Call::RemoveDirectory(path) => files.remove_directory(&path).map(done),
        Call::DirectAlignment(path) => files.direct_alignment(&path).map(Answer::Perhaps),
        Call::DropCache(path) => files.drop_cache(&path).map(done),
    }
}
