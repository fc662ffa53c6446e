# SPDX-License-Identifier: Apache-2.0
"""A DCGAN: two models, two optimizers, two losses and two backward passes a step."""

import oracle
import torch
from torch import nn
from torch.nn import functional as F


class Generator(nn.Module):
    def __init__(self, noise, width):
        super().__init__()
        self.main = nn.Sequential(
            nn.ConvTranspose2d(noise, 4 * width, 4, bias=False),
            nn.BatchNorm2d(4 * width),
            nn.ReLU(True),
            nn.ConvTranspose2d(4 * width, 2 * width, 4, 2, 1, bias=False),
            nn.BatchNorm2d(2 * width),
            nn.ReLU(True),
            nn.ConvTranspose2d(2 * width, 3, 4, 2, 1, bias=False),
            nn.Tanh(),
        )

    def forward(self, z):
        return self.main(z)


class Discriminator(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(3, width, 4, 2, 1, bias=False),
            nn.LeakyReLU(0.2, True),
            nn.Conv2d(width, 2 * width, 4, 2, 1, bias=False),
            nn.BatchNorm2d(2 * width),
            nn.LeakyReLU(0.2, True),
            nn.Conv2d(2 * width, 1, 4, bias=False),
        )

    def forward(self, x):
        return self.main(x).flatten()


def main():
    run = oracle.Run(__doc__)
    noise, width, batch = (100, 128, 256) if run.full else (8, 8, 4)
    generator = Generator(noise, width).to(run.device)
    discriminator = Discriminator(width).to(run.device)
    of_g = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    of_d = torch.optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    run.watch(generator=generator, discriminator=discriminator, of_g=of_g, of_d=of_d)
    for _ in run.steps():
        real = torch.rand(batch, 3, 16, 16, device=run.device)
        z = torch.randn(batch, noise, 1, 1, device=run.device)
        run.data(real, z)
        of_d.zero_grad()
        fake = generator(z)
        # Both in one call; the first half is real.
        both = torch.cat((real, fake.detach()))
        verdict = discriminator(both)
        d_loss = F.softplus(verdict[batch:]).mean() + F.softplus(-verdict[:batch]).mean()
        run.at("end of forward of D", fake, both, verdict, d_loss)
        d_loss.backward()
        run.at("end of backward of D", fake, both, verdict, d_loss)
        of_d.step()
        run.at("after step of D", fake, both, verdict, d_loss)
        of_g.zero_grad()
        doubt = discriminator(fake)
        g_loss = F.softplus(-doubt).mean()
        run.at("end of forward of G", fake, both, verdict, d_loss, doubt, g_loss)
        g_loss.backward()
        run.at("end of backward of G", fake, both, verdict, d_loss, doubt, g_loss)
        of_g.step()
        run.at("after step of G", fake, both, verdict, d_loss, doubt, g_loss)
        run.loss(d_loss)
        run.loss(g_loss)
        del fake, both, verdict, d_loss, doubt, g_loss
    run.finish()


if __name__ == "__main__":
    main()
