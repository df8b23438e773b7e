# One image for every role: `docker build --tag regional-fanout .`, then `docker run regional-fanout consumer eu`.

ARG PYTHON=3.13

FROM python:${PYTHON}-slim AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
RUN python -m venv /opt/fanout
WORKDIR /build
# First what seldom changes. Every package is pinned by hash, the build backend included: nothing else is fetched.
COPY requirements-run.lock ./
RUN /opt/fanout/bin/pip install --require-hashes --only-binary :all: --requirement requirements-run.lock
COPY pyproject.toml README.md ./
COPY fanout fanout
COPY regions regions
# What builds the package leaves again, and pip last.
RUN /opt/fanout/bin/pip install --no-deps --no-build-isolation . \
    && /opt/fanout/bin/pip uninstall --yes editables hatchling packaging pathspec pluggy tomlkit trove-classifiers \
    && /opt/fanout/bin/pip uninstall --yes pip \
    && /opt/fanout/bin/fanout --help > /dev/null

FROM python:${PYTHON}-slim
RUN useradd --system --uid 10001 --user-group --create-home --home-dir /srv/fanout --shell /usr/sbin/nologin fanout
COPY --from=build /opt/fanout /opt/fanout
COPY config/fanout.toml /srv/fanout/config/fanout.toml
ENV PATH=/opt/fanout/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
# By number, so that whoever runs it can see that it is not root.
USER 10001:10001
WORKDIR /srv/fanout
EXPOSE 8080
ENTRYPOINT ["fanout"]
CMD ["--help"]
