# The gate in a container: docker build --build-arg EXTRAS=cpu,torch --tag paritygate .
#   docker run --rm --volume "$PWD:/model" --user "$(id -u):$(id -g)" paritygate run spec.yaml
FROM python:3.12-slim

ARG EXTRAS=cpu

COPY . /opt/paritygate
RUN cd /opt/paritygate && python -m pip install --no-cache-dir --constraint constraints.txt ".[$EXTRAS]"

# Whoever runs it has no home in here.
ENV HOME=/tmp PYTHONUNBUFFERED=1
WORKDIR /model
ENTRYPOINT ["convert-and-validate"]
CMD ["--help"]
