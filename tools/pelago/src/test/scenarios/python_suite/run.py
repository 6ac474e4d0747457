"""Runs modules of CPython's own tests and tells what became of them.

Each module runs in a process of its own, so that one that ends or hangs takes no other with it; what
is left of it is run again without the test that did. Of each test that neither passes nor skips, and
of each module, there is a line; lines about tests that pass would be thousands.

    suite fails test_os.FileTests.test_access
    suite module test_os 321 passed 12 skipped
    suite ends

Arguments: modules; a name with dots, or in /suite/out, is a test that is left out, or with a star
several of them.
"""
import fnmatch
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOLD = '/tmp/suite.told'
LEFT = '/tmp/suite.left'
LOG = '/tmp/suite.log'
# A test that says nothing for so long hangs; so does what comes before the first one.
LIMIT_S = int(os.environ.get('SUITE_LIMIT', '150'))
# What asks for the network and needs this machine's own alone.
RESOURCES = {'test_socketserver': ['network']}
RESTARTS = 12
TRACE_LINES = 14


def read(path):
    try:
        with open(path) as file:
            return file.read().splitlines()
    except FileNotFoundError:
        return []


def say(*words):
    print('suite', *words, flush=True)


# ---- A module, in its own process.

def run_module(module):
    import faulthandler
    import unittest
    from test import support
    from test.support import os_helper

    faulthandler.enable()
    # As `python3 -m test` has it: no network, no hours of work.
    support.use_resources = RESOURCES.get(module, [])
    # An emulated machine is slow.
    support.LOOPBACK_TIMEOUT, support.SHORT_TIMEOUT, support.LONG_TIMEOUT = 30, 40, 600
    left = set(read(LEFT))
    stars = [pattern for pattern in left if '*' in pattern]

    def is_left(name):
        return name in left or any(fnmatch.fnmatchcase(name, pattern) for pattern in stars)

    def name(test):
        return test.id().removeprefix('test.')

    def tell(word, test, trace=''):
        lines = [f'{word} {name(test)}'] + ['| ' + line for line in trace.splitlines()[-TRACE_LINES:]]
        with open(TOLD, 'a') as file:
            file.write('\n'.join(lines) + '\n')

    class Told(unittest.TestResult):
        def startTest(self, test):
            super().startTest(test)
            self.is_bad = False
            tell('begins', test)

        def bad(self, test, error):
            self.is_bad = True
            tell('fails', test, self._exc_info_to_string(error, test))

        def addSuccess(self, test):
            tell('passes', test)

        def addFailure(self, test, error):
            self.bad(test, error)

        def addError(self, test, error):
            self.bad(test, error)

        def addSubTest(self, test, subtest, error):
            if error is not None and not self.is_bad:
                self.bad(test, error)

        def addSkip(self, test, reason):
            tell('skips', test)

        def addExpectedFailure(self, test, error):
            tell('passes', test)

        def addUnexpectedSuccess(self, test):
            self.is_bad = True
            tell('fails', test, 'it was expected to fail')

    def wanted(suite):
        kept = unittest.TestSuite()
        for test in suite:
            if isinstance(test, unittest.TestSuite):
                kept.addTest(type(test)(wanted(test)))
            elif not is_left(name(test)):
                kept.addTest(test)
        return kept

    with os_helper.temp_cwd('/tmp/suite.cwd', quiet=True):
        try:
            suite = unittest.defaultTestLoader.loadTestsFromName('test.' + module)
        except unittest.SkipTest:
            suite = unittest.TestSuite()
        wanted(suite).run(Told())
    with open(TOLD, 'a') as file:
        file.write('done\n')


# ---- All of them.

class Module:
    """What became of one, as its processes tell it."""

    def __init__(self, name, out):
        self.name, self.left, self.begun, self.is_done = name, set(out), None, False
        self.counts = {'passes': 0, 'skips': 0}

    def hear(self, line):
        word, _, rest = line.rstrip('\n').partition(' ')
        if word == '|':
            print('    ' + rest)
        if word == 'begins':
            self.begun = rest
        if word in ('passes', 'skips', 'fails'):
            self.begun = None
            self.left.add(rest)
        if word in self.counts:
            self.counts[word] += 1
        if word == 'fails':
            say('fails', rest)
        self.is_done = self.is_done or word == 'done'

    def run_once(self):
        """Gives how its process ended, if that was too early."""
        open(TOLD, 'w').close()
        with open(LEFT, 'w') as file:
            file.write('\n'.join(self.left))
        with open(LOG, 'w') as log:
            words = [sys.executable, os.path.abspath(__file__), '--one', self.name]
            child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        self.begun, heard, how = None, time.monotonic(), None
        with open(TOLD) as told:
            spoken, part = heard, ''
            while True:
                has_ended = child.poll() is not None
                text = part + told.read()
                *lines, part = text.split('\n')
                for line in lines:
                    self.hear(line)
                now = time.monotonic()
                heard = now if lines else heard
                if has_ended:
                    break
                if now - spoken > 20:
                    say('at', self.begun or self.name)
                    spoken = now
                if now - heard > LIMIT_S:
                    child.kill()
                    how = 'hangs'
                time.sleep(0.2)
        return None if self.is_done else how or f'dies({child.returncode})'

    def run(self):
        began = time.monotonic()
        for _ in range(RESTARTS):
            how = self.run_once()
            if how is None:
                break
            for line in read(LOG)[-TRACE_LINES:]:
                print('    ' + line)
            say(how, self.begun or self.name)
            if self.begun is None:
                break
            self.left.add(self.begun)
        passed, skipped = self.counts.values()
        say('module', self.name, passed, 'passed', skipped, 'skipped', f'{time.monotonic() - began:.0f} s')


def main():
    if sys.argv[1] == '--one':
        return run_module(sys.argv[2])
    out = [word for word in sys.argv[1:] if '.test_' in word or ' ' in word] + read(HERE + '/out')
    for module in sys.argv[1:]:
        if module not in out:
            Module(module, [test for test in out if module in test]).run()
    say('ends')


# What multiprocessing starts imports this too.
if __name__ == '__main__':
    main()
