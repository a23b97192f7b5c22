//! Questions that block for too long to be asked in a tick.

use std::{
    sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// A thread that answers one question at a time, while its device goes on with the others. What its calls cost, the device tells by
/// [`Device::time_elsewhere`](crate::Device::time_elsewhere).
///
/// Dropped, it waits for a call that is under way, and abandons the thread after `patience`: a call may never return.
#[derive(Debug)]
pub struct Aside<Question, Reply> {
    questions: Option<SyncSender<Question>>,
    replies: Receiver<Reply>,
    /// Where no thread could be started, its channels are closed from the start.
    thread: Option<JoinHandle<()>>,
    patience: Duration,
}

impl<Question: Send + 'static, Reply: Send + 'static> Aside<Question, Reply> {
    /// Starts the thread, named `name` (of which the kernel shows 15 bytes). What `answer` holds and is given is let go of with the thread and with each
    /// question. When no thread can be started, that is logged and [`reply`](Self::reply) says so.
    pub fn start(name: &str, patience: Duration, mut answer: impl FnMut(Question) -> Reply + Send + 'static) -> Self {
        // One question is in flight at a time.
        let (questions, inbox) = sync_channel::<Question>(1);
        let (outbox, replies) = sync_channel(1);
        let body = move || {
            while let Ok(question) = inbox.recv() {
                if outbox.send(answer(question)).is_err() {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(body);
        if let Err(error) = &thread {
            log::warn!("{name}: what is asked on a thread of its own is absent, since that cannot be started: {error}");
        }
        Self { questions: Some(questions), replies, thread: thread.ok(), patience }
    }

    /// Asks; never blocks. To be called when the last question has been answered: a further one is dropped.
    pub fn ask(&self, question: Question) {
        let taken = self.questions.as_ref().map(|questions| questions.try_send(question));
        if !matches!(taken, Some(Ok(()))) {
            // The thread has ended or never began, which the look for its reply will show.
            log::debug!("a question aside is not taken");
        }
    }

    /// The answer, once it is there; never blocks.
    ///
    /// # Errors
    /// [`TryRecvError::Empty`] when it is not there yet, [`TryRecvError::Disconnected`] when none will come: the thread panicked or never began.
    pub fn reply(&self) -> Result<Reply, TryRecvError> {
        self.replies.try_recv()
    }

    /// The answer, waited for: for calls that mostly take no time to speak of and may hang all the same.
    ///
    /// # Errors
    /// [`RecvTimeoutError::Timeout`] when it has not come within `limit`: it may still come; [`RecvTimeoutError::Disconnected`] when none will.
    pub fn reply_within(&self, limit: Duration) -> Result<Reply, RecvTimeoutError> {
        self.replies.recv_timeout(limit)
    }
}

impl<Question, Reply> Drop for Aside<Question, Reply> {
    fn drop(&mut self) {
        self.questions = None;
        // The channel closes when the thread ends, after the reply of a call that is under way.
        let deadline = Instant::now() + self.patience;
        let ended = loop {
            match self.replies.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => break true,
                Err(RecvTimeoutError::Timeout) => break false,
            }
        };
        if let (true, Some(thread)) = (ended, self.thread.take())
            && thread.join().is_err()
        {
            log::warn!("a thread that was asked aside panicked");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        mpsc::{Sender, channel},
    };

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn wait<Question: Send + 'static, Reply: Send + 'static>(aside: &Aside<Question, Reply>) -> Result<Reply, TryRecvError> {
        loop {
            match aside.reply() {
                Err(TryRecvError::Empty) => thread::yield_now(),
                reply => return reply,
            }
        }
    }

    #[test]
    fn answers_come_when_they_come() {
        let (finish, finished) = channel::<()>();
        let aside = Aside::start("aside", LONG, move |question: u32| {
            finished.recv().unwrap();
            question + 1
        });
        aside.ask(4);
        assert_eq!(aside.reply(), Err(TryRecvError::Empty));
        finish.send(()).unwrap();
        assert_eq!(wait(&aside), Ok(5));
        assert_eq!(aside.reply(), Err(TryRecvError::Empty));
    }

    #[test]
    fn an_answer_is_waited_for_no_longer_than_asked() {
        let (finish, finished) = channel::<()>();
        let aside = Aside::start("aside", LONG, move |question: u32| {
            finished.recv().unwrap();
            question + 1
        });
        aside.ask(4);
        assert_eq!(aside.reply_within(Duration::from_millis(1)), Err(RecvTimeoutError::Timeout));
        finish.send(()).unwrap();
        assert_eq!(aside.reply_within(LONG), Ok(5));
        drop(finish);
        aside.ask(5);
        assert_eq!(aside.reply_within(LONG), Err(RecvTimeoutError::Disconnected));
    }

    #[test]
    fn a_thread_that_panicked_answers_no_more() {
        let aside = Aside::start("aside", LONG, |()| panic!("as scripted"));
        aside.ask(());
        assert_eq!(wait::<(), ()>(&aside), Err(TryRecvError::Disconnected));
        aside.ask(());
    }

    #[test]
    fn the_end_waits_for_a_call_that_returns_and_not_for_one_that_does_not() {
        let held = Arc::new(());
        let start = |patience, pause: Duration| {
            let held = Arc::clone(&held);
            let aside = Aside::start("aside", patience, move |()| {
                let _held = &held;
                thread::sleep(pause);
            });
            aside.ask(());
            aside
        };
        drop(start(LONG, Duration::from_millis(50)));
        assert_eq!(Arc::strong_count(&held), 1, "the thread has ended");

        let (sender, hanging): (Sender<()>, _) = channel();
        let aside = Aside::start("aside", Duration::from_millis(20), move |()| hanging.recv().unwrap_or_default());
        aside.ask(());
        let began = Instant::now();
        drop(aside);
        assert!(began.elapsed() < LONG);
        drop(sender);
    }
}
