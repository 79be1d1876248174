//! The control side of a target in a child process: each method of [`Files`] a call over a pipe, bounded in time.

use std::io::BufRead;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::error::{Error, Kind, Phase, Result};
use crate::fleet::child::{Spawned, Voice, say};
use crate::fleet::wire::{Answer, Call, Errand, receive, send};
use crate::target::{self, Control, Entry, Facts, Files, Login};

/// Time beyond the login's own timeout after which a silent child is given up.
const GRACE: Duration = Duration::from_secs(5);

/// The parent's side.
pub(super) struct Remote {
    child: Spawned,
    answers: Receiver<Result<Answer>>,
    patience: Duration,
}

impl Remote {
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
            child,
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
            Err(_) => {
                self.child.kill();
                let message = format!("no answer within {} s", self.patience.as_secs());
                Err(Error::new(Phase::Open, Kind::TimedOut, message))
            }
        }
    }

    fn call(&mut self, call: &Call) -> Result<Answer> {
        send(&mut self.child.input, call)?;
        self.answer()
    }

    fn act(&mut self, call: &Call) -> Result<()> {
        self.call(call).map(drop)
    }
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
        match self.call(&Call::Facts)? {
            Answer::Facts(facts) => Ok(facts),
            other => Err(strange(&other)),
        }
    }

    fn list(&mut self, directory: &str) -> Result<Vec<Entry>> {
        match self.call(&Call::List(directory.into()))? {
            Answer::Entries(entries) => Ok(entries),
            other => Err(strange(&other)),
        }
    }

    fn make_directory(&mut self, path: &str) -> Result<()> {
        self.act(&Call::MakeDirectory(path.into()))
    }

    fn create(&mut self, path: &str) -> Result<()> {
        self.act(&Call::Create(path.into()))
    }

    fn put(&mut self, path: &str, content: &[u8]) -> Result<()> {
        self.act(&Call::Put(path.into(), content.to_vec()))
    }

    fn get(&mut self, path: &str, limit: usize) -> Result<Vec<u8>> {
        match self.call(&Call::Get(path.into(), limit))? {
            Answer::Bytes(bytes) => Ok(bytes),
            other => Err(strange(&other)),
        }
    }

    fn size(&mut self, path: &str) -> Result<u64> {
        match self.call(&Call::Size(path.into()))? {
            Answer::Size(size) => Ok(size),
            other => Err(strange(&other)),
        }
    }

    fn unwritten(&mut self, path: &str) -> Result<Option<u64>> {
        match self.call(&Call::Unwritten(path.into()))? {
            Answer::Unwritten(bytes) => Ok(bytes),
            other => Err(strange(&other)),
        }
    }

    fn remove(&mut self, path: &str) -> Result<()> {
        self.act(&Call::Remove(path.into()))
    }

    fn remove_directory(&mut self, path: &str) -> Result<()> {
        self.act(&Call::RemoveDirectory(path.into()))
    }
}

/// The child's side: answers calls until the parent closes the pipe.
pub(super) fn serve(login: &Login, input: &mut impl BufRead, voice: &Voice) -> Result<()> {
    let opened = target::find(&login.spec).and_then(|protocol| (protocol.control)(login));
    let mut files = match opened {
        Ok(Control::Files(files)) => files,
        Ok(_) => {
            let error = Error::new(
                Phase::Open,
                Kind::Unsupported,
                "this target has no directory",
            );
            return say(voice, &Answer::Failed(error));
        }
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
        Call::Unwritten(path) => files.unwritten(&path).map(Answer::Unwritten),
        Call::Remove(path) => files.remove(&path).map(done),
        Call::RemoveDirectory(path) => files.remove_directory(&path).map(done),
    }
}
